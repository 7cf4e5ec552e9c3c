#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.hpp"

namespace lockstep::observe {

/// One training among others, for TensorBoard's page HPARAMS: what it tried, and how it did.
struct TrialSession {
  config::Config config = {};
  std::vector<std::string> keys = {};            ///< of it, that others may have otherwise
  std::string score_name = {};                   ///< "top-1"; its curve is score/top-1
  std::map<std::uint64_t, double> scores = {};   ///< by epoch; NaN is left out
  std::optional<bool> succeeded = std::nullopt;  ///< once it has ended
  double time_s = 0;                             ///< since 1970
};

/// The bytes of its file of events, whose name must begin with "events.out.tfevents.".
std::string session_file(const TrialSession& session);

}  // namespace lockstep::observe
