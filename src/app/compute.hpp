#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "commands.hpp"
#include "lockstep/backend/backend.hpp"

namespace lockstep::app {

struct ComputeRequest {
  std::string backend = "cpu";  ///< "cpu" or "cuda"
  std::size_t threads = 0;      ///< compute threads; 0 = one for each core of the rank's share
  bool require_binding = false;
};

/// What a rank computes on, bound to its place.
struct Compute {
  std::unique_ptr<Backend> backend;
  std::function<void()> bind_worker;  ///< puts the calling loader thread in its place
  std::size_t spare_cores = 0;        ///< logical processors that no compute thread uses
  std::string binding_report;         ///< JSON of all ranks
};

/// Places this rank among those of its machine, binds the process, then makes the backend, whose
/// threads inherit the binding. Collective; call it once, after Launch::start and before anything
/// that starts threads. Throws InputError when a binding was required and reading back denies it.
Compute prepare_compute(Launch& launch, const ComputeRequest& request);

}  // namespace lockstep::app
