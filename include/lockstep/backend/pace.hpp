#pragma once

// How fast a device computes that need not be here: for rehearsals and simulations.

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/backend/rates.hpp"

namespace lockstep::backend {

/// A step of b rows takes row_ms * b + step_ms. With exposed communication added, this describes
/// published results of the same machine from 8 to 4320 GPUs within some percent.
struct LinePace {
  double row_ms = 0, step_ms = 0;
};

/// A GPU that reaches this share of its stated rates in each step of the tape.
struct GpuPace {
  std::string name;
  GpuRates rates;
  double efficiency = 1;
};

/// A tape that `bench train --layers --json` measured; for other numbers of rows its times grow in
/// proportion.
struct MeasuredPace {
  struct Step {
    std::string name;
    double ms = 0;
    std::vector<std::string> final_tensors;  ///< whose gradients are final after it

    static void fields(auto& self, auto&& visit) {
      visit("name", self.name);
      visit("ms", self.ms);
      visit("final", self.final_tensors);
    }
  };
  std::string origin;    ///< the file, for errors
  std::string model;     ///< "resnet20"
  std::size_t rows = 0;  ///< of a micro-batch
  std::size_t forward_steps = 0;
  std::vector<Step> tape;
  double update_ms = 0;
};

using Pace = std::variant<LinePace, GpuPace, MeasuredPace>;

/// "0.29 ms a row and 4.8 ms a step"
std::string describe(const Pace& pace);

/// Reads a tape, or a GPU's profile (jobs/gpus/*.json), to which `efficiency` belongs. Throws
/// InputError naming the file and what it lacks.
Pace read_pace(const std::filesystem::path& path, double efficiency);

/// How the clock backend's description begins, and whether this is one: checkpoints hold it.
inline constexpr std::string_view rehearsal_prefix = "clock: ";
inline bool is_rehearsal(std::string_view description) {
  return description.starts_with(rehearsal_prefix);
}

}  // namespace lockstep::backend
