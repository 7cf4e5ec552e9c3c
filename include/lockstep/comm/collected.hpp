#pragma once

#include <functional>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::comm {

/// The first half of Communicator::together(): runs `calls`, while `batch` is where a communicator
/// puts its operations instead of starting them, and returns these. Throws Error inside of another
/// together(), and what `calls` throws; `batch` is null again in any case.
template <class Operation>
std::vector<Operation> collected(std::vector<Operation>*& batch,
                                 const std::function<void()>& calls) {
  check(!batch, "together() inside together()");
  std::vector<Operation> operations;
  batch = &operations;
  try {
    calls();
  } catch (...) {
    batch = nullptr;
    throw;
  }
  batch = nullptr;
  return operations;
}

}  // namespace lockstep::comm
