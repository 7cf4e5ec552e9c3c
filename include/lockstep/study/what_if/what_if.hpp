#pragma once

// How long a run's steps would be if one thing were otherwise, simulated from the run's own files.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/study/doctor/diagnosis.hpp"

namespace lockstep::study {

/// One thing that is otherwise.
struct Supposition {
  std::string what = {};                           ///< "rank 3 as fast as the median"
  std::optional<std::size_t> rank = std::nullopt;  ///< whose; empty: of all ranks
  std::string part = {};  ///< of a step: "backward", "network"; empty: all of it
  /// How much shorter a step is then. The interval is the 95 % one of traced steps; else it spans
  /// the epochs and what they leave open about the network. Empty: not known.
  std::optional<Interval> gain = std::nullopt;
  std::string not_known = {};  ///< without a gain: why
};

struct WhatIf {
  std::string basis;                     ///< what it is simulated from
  std::string not_known;                 ///< why nothing is; else empty
  std::uint64_t batch = 0;               ///< rows of a step
  double step_ms = 0;                    ///< as recorded
  double simulated_ms = 0;               ///< the same steps by the simulation
  std::vector<Supposition> all = {};     ///< the largest gain first, those not known last
  std::vector<std::string> limits = {};  ///< what these figures do not say
};

/// What the newest start of a run says, by simulate_ranks(): each rank as fast as the median one,
/// in all and in each part of a step (of the 16 ranks that lose most), no waiting for rows, twice
/// as fast devices, 10 times the network. From the timeline of `trace` where ranks on CPUs wrote
/// one, else from the means of epochs and the network's shape. Reads only. What a file lacks, or a
/// damaged file, is a reason in `not_known`. REQUIRES: the records of this run.
WhatIf suppose(const std::filesystem::path& run, const NewestStart& records);

std::string heading_of(const WhatIf& what_if);
/// The table's rows, the first of them its heads: what is worth 1 % of a step, and what is of all
/// ranks. Empty where nothing is known.
std::vector<std::vector<std::string>> table_of(const WhatIf& what_if);
std::string limits_of(const WhatIf& what_if);  ///< a line for each, with line ends
/// The diagnosis as its own to_json() writes it, with `what_if` in addition.
std::string to_json(const Diagnosis& diagnosis, const WhatIf& what_if);

}  // namespace lockstep::study
