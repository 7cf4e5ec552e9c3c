#include "lockstep/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/error.hpp"

namespace lockstep::optim {
namespace {

/// The progress of the decay: 0 at its first step, 1 at total_steps.
double decay_progress(const ScheduleSpec& spec, std::uint64_t step) {
  if (spec.total_steps <= spec.warmup_steps) return 1;
  const double done = static_cast<double>(step - spec.warmup_steps);
  return std::min(1.0, done / static_cast<double>(spec.total_steps - spec.warmup_steps));
}

double decayed(const ScheduleSpec& spec, std::uint64_t step) {
  const double base = spec.base, floor = spec.final_lr;
  switch (spec.decay) {
    case Decay::constant:
      return base;
    case Decay::cosine:
      return floor +
             (base - floor) * 0.5 * (1 + std::cos(std::numbers::pi * decay_progress(spec, step)));
    case Decay::step: {
      const auto passed = std::count_if(spec.milestones.begin(), spec.milestones.end(),
                                        [step](std::uint64_t at) { return step >= at; });
      return base * std::pow(static_cast<double>(spec.factor), static_cast<double>(passed));
    }
    case Decay::polynomial:
      return floor + (base - floor) *
                         std::pow(1 - decay_progress(spec, step), static_cast<double>(spec.power));
  }
  throw Error("a decay that learning_rate does not know");
}

}  // namespace

float learning_rate(const ScheduleSpec& spec, std::uint64_t step) {
  if (step >= spec.warmup_steps) return static_cast<float>(decayed(spec, step));
  const double way = static_cast<double>(step + 1) / static_cast<double>(spec.warmup_steps);
  const double start = spec.warmup_start, base = spec.base;
  return static_cast<float>(start + (base - start) * way);
}

}  // namespace lockstep::optim
