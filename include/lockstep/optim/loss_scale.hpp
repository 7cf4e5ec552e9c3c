#pragma once

#include <cstdint>

namespace lockstep::optim {

/// fp16's gradients are multiplied by `scale`, so that small ones do not vanish, and divided by it
/// in the update. A step whose gradients overflow is skipped and halves the scale; after
/// growth_steps good steps the scale doubles (Micikevicius et al. 2018; PyTorch's numbers).
struct LossScale {
  float scale = 65536;
  std::uint32_t good_steps = 0;        ///< since the scale last changed
  std::uint32_t skipped_in_a_row = 0;  ///< steps skipped since the last good one
  std::uint64_t skipped = 0;           ///< since training began
  constexpr bool operator==(const LossScale&) const = default;
};
constexpr std::uint32_t growth_steps = 2000;
constexpr float largest_scale = 16777216;  // 2^24: gradients are already divided by the batch
constexpr LossScale after_step(LossScale s, bool overflow) {
  if (overflow) {
    s.scale = s.scale > 2 ? s.scale / 2 : 1;
    s.good_steps = 0;
    ++s.skipped_in_a_row;
    ++s.skipped;
    return s;
  }
  s.skipped_in_a_row = 0;
  if (++s.good_steps < growth_steps) return s;
  s.good_steps = 0;
  if (s.scale < largest_scale) s.scale *= 2;
  return s;
}

}  // namespace lockstep::optim
