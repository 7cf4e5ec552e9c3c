#include "lockstep/study/simulate/timeline.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/reduce/buckets.hpp"

namespace lockstep::study {
namespace {

/// When each slice is final.
std::vector<double> final_ms(const backend::TimedTape& tape, std::size_t slices) {
  std::vector<double> times(slices, -1);
  double at = tape.forward_ms();
  for (const backend::TimedStep& step : tape.backward) {
    at += step.ms;
    for (const std::size_t slice : step.final_slices) times.at(slice) = at;
  }
  check(std::all_of(times.begin(), times.end(), [](double time) { return time >= 0; }),
        "a tape leaves a slice without its gradient");
  return times;
}

}  // namespace

StepTimeline simulate_step(const backend::TimedTape& tape, const nn::ArenaLayout& layout,
                           std::size_t bucket_bytes, const CostOf& cost) {
  StepTimeline step;
  step.forward_ms = tape.forward_ms();
  step.backward_ms = tape.backward_ms();
  const std::vector<double> slice_final = final_ms(tape, layout.slices.size());
  double free_ms = 0, arrived_ms = 0, now = step.forward_ms + step.backward_ms;
  for (const reduce::Bucket& bucket : reduce::plan_buckets(layout, bucket_bytes)) {
    BucketTimes times;
    times.bytes = static_cast<double>(bucket.size * sizeof(float));
    for (std::size_t s = bucket.first_slice; s < bucket.last_slice; ++s)
      times.ready_ms = std::max(times.ready_ms, slice_final[s]);
    // Buckets begin in their order, so one waits for those before it to be full, too.
    if (!step.buckets.empty())
      times.ready_ms = std::max(times.ready_ms, step.buckets.back().ready_ms);
    times.start_ms = std::max(times.ready_ms, free_ms);
    const ReduceCost takes = cost(times.bytes);
    free_ms = times.start_ms + 1e3 * takes.busy_s;
    arrived_ms = times.end_ms = std::max(arrived_ms, free_ms + 1e3 * takes.delay_s);
    step.exposed_ms += std::max(0.0, times.end_ms - now);
    const double update_ms =
        tape.update_ms * static_cast<double>(bucket.size) / static_cast<double>(layout.size);
    now = std::max(now, times.end_ms) + update_ms;
    step.update_ms += update_ms;
    step.buckets.push_back(times);
  }
  return step;
}

double slowest_of(std::size_t ranks) {
  return ranks <= 1 ? 0 : std::sqrt(2 * std::log(static_cast<double>(ranks)));
}

}  // namespace lockstep::study
