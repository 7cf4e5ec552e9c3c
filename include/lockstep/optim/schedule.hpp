#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/text/choices.hpp"

namespace lockstep::optim {

enum class Decay { constant, cosine, step, polynomial };

/// The learning rate as a function of the step alone. First a linear warm-up from warmup_start over
/// `warmup_steps`: step s, counted from 0, takes (s + 1) / warmup_steps of the way, as in PyTorch's
/// recipes, so the first step is not 0. Then the decay from `base` to `final_lr` over the remaining
/// steps.
struct ScheduleSpec {
  float base = 0.1f;
  float final_lr = 0;
  float warmup_start = 0;
  std::uint64_t warmup_steps = 0, total_steps = 1;
  Decay decay = Decay::cosine;
  /// Step decay: lr is multiplied by `factor` at each of these steps.
  std::vector<std::uint64_t> milestones{};
  float factor = 0.1f;
  float power = 2;  ///< polynomial
};

float learning_rate(const ScheduleSpec& spec, std::uint64_t step);

}  // namespace lockstep::optim

template <>
struct lockstep::Choices<lockstep::optim::Decay> {
  using enum optim::Decay;
  static constexpr Choice<optim::Decay> all[] = {
      {constant, "constant"}, {cosine, "cosine"}, {step, "step"}, {polynomial, "polynomial"}};
};
