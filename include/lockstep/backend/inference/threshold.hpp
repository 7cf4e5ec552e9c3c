#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::backend {

/// What is known of a validation row, for the threshold of a cascade of two.
struct ThresholdRow {
  double confidence = 0;  ///< top_probability() by the first
  bool first_right = false, second_right = false;
  static void fields(auto& self, auto&& visit) {
    visit(self.confidence, self.first_right, self.second_right);
  }
};

struct FittedThreshold {
  double above = 1;                           ///< see Stage::above; few digits
  std::uint64_t kept = 0;                     ///< rows that the first answers
  std::uint64_t right = 0, second_right = 0;  ///< of the cascade, of the second on its own
};

/// The smallest threshold from 0 to 1 by which a cascade is right on no fewer rows than the second
/// minus `points` per cent of all rows. There is one: by 1 the second answers all rows. Of all
/// thresholds that divide the rows in the same way, it has the fewest digits. A confidence that is
/// not a number is above nothing.
FittedThreshold fit_threshold(std::vector<ThresholdRow> rows, double points);

}  // namespace lockstep::backend
