#include "lockstep/study/simulate/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

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

/// What steps of a rank are: when its buckets are full, from the step's beginning, and so on.
struct RankSteps {
  double forward_ms = 0, backward_ms = 0;
  std::vector<double> full_ms, update_ms;  ///< by bucket

  RankSteps(const backend::TimedTape& tape, const nn::ArenaLayout& layout,
            const std::vector<reduce::Bucket>& buckets)
      : forward_ms(tape.forward_ms()), backward_ms(tape.backward_ms()) {
    const std::vector<double> slice_final = final_ms(tape, layout.slices.size());
    double full = 0;
    for (const reduce::Bucket& bucket : buckets) {
      // Buckets begin in their order, so one waits for those before it to be full, too.
      for (std::size_t s = bucket.first_slice; s < bucket.last_slice; ++s)
        full = std::max(full, slice_final[s]);
      full_ms.push_back(full);
      update_ms.push_back(tape.update_ms * static_cast<double>(bucket.size) /
                          static_cast<double>(layout.size));
    }
  }
};

/// Ranks that train together, step after step.
class Lockstep {
 public:
  Lockstep(std::size_t ranks, const nn::ArenaLayout& layout, std::size_t bucket_bytes)
      : layout_(layout), buckets_(reduce::plan_buckets(layout, bucket_bytes)), now_ms_(ranks) {}

  /// What the steps from this one on are.
  void take(const std::vector<backend::TimedTape>& tapes) {
    ranks_.clear();
    for (const backend::TimedTape& tape : tapes) ranks_.emplace_back(tape, layout_, buckets_);
  }

  std::vector<StepTimeline> step(const CostOf& cost) {
    const std::vector<double> began_ms = now_ms_;
    std::vector<StepTimeline> steps(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      steps[r].forward_ms = ranks_[r].forward_ms;
      steps[r].backward_ms = ranks_[r].backward_ms;
      now_ms_[r] += ranks_[r].forward_ms + ranks_[r].backward_ms;
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const BucketTimes times = move(b, began_ms, cost);
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        StepTimeline& step = steps[r];
        step.exposed_ms += std::max(0.0, times.end_ms - now_ms_[r]);
        now_ms_[r] = std::max(now_ms_[r], times.end_ms) + ranks_[r].update_ms[b];
        step.update_ms += ranks_[r].update_ms[b];
        step.buckets.push_back({.bytes = times.bytes,
                                .ready_ms = times.ready_ms - began_ms[r],
                                .start_ms = times.start_ms - began_ms[r],
                                .end_ms = times.end_ms - began_ms[r]});
      }
    }
    return steps;
  }

 private:
  /// Times on the clock of all ranks.
  BucketTimes move(std::size_t b, const std::vector<double>& began_ms, const CostOf& cost) {
    BucketTimes times{.bytes = static_cast<double>(buckets_[b].size * sizeof(float))};
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      times.ready_ms = std::max(times.ready_ms, began_ms[r] + ranks_[r].full_ms[b]);
    times.start_ms = std::max(times.ready_ms, free_ms_);
    const ReduceCost takes = cost(times.bytes);
    free_ms_ = times.start_ms + 1e3 * takes.busy_s;
    arrived_ms_ = times.end_ms = std::max(arrived_ms_, free_ms_ + 1e3 * takes.delay_s);
    return times;
  }

  const nn::ArenaLayout& layout_;
  std::vector<reduce::Bucket> buckets_;
  std::vector<RankSteps> ranks_;
  std::vector<double> now_ms_;           ///< by rank, when it has ended its newest step
  double free_ms_ = 0, arrived_ms_ = 0;  ///< of the network
};

}  // namespace

StepTimeline simulate_step(const backend::TimedTape& tape, const nn::ArenaLayout& layout,
                           std::size_t bucket_bytes, const CostOf& cost) {
  Lockstep alone(1, layout, bucket_bytes);
  alone.take({tape});
  return alone.step(cost).front();
}

std::vector<StepTimeline> simulate_ranks(const std::vector<backend::TimedTape>& tapes,
                                         const nn::ArenaLayout& layout, std::size_t bucket_bytes,
                                         const CostOf& cost) {
  constexpr int most_steps = 20;
  constexpr double settled = 1e-9;
  Lockstep ranks(tapes.size(), layout, bucket_bytes);
  ranks.take(tapes);
  std::vector<StepTimeline> steps = ranks.step(cost);
  for (int i = 0; i < most_steps; ++i) {
    const std::vector<StepTimeline> before = std::exchange(steps, ranks.step(cost));
    const bool same = std::equal(
        steps.begin(), steps.end(), before.begin(), [](const auto& now, const auto& then) {
          return std::abs(now.step_ms() - then.step_ms()) <= settled * now.step_ms();
        });
    if (same) break;
  }
  return steps;
}

std::vector<std::vector<StepTimeline>> simulate_unlike_steps(
    const std::vector<std::vector<backend::TimedTape>>& steps, const nn::ArenaLayout& layout,
    std::size_t bucket_bytes, const std::vector<CostOf>& costs) {
  std::vector<std::vector<StepTimeline>> timelines;
  if (steps.empty()) return timelines;
  Lockstep ranks(steps.front().size(), layout, bucket_bytes);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    ranks.take(steps[i]);
    timelines.push_back(ranks.step(costs.at(i)));
  }
  return timelines;
}

// Which batch norms share a gather. The CPU backend's regions end where a batch norm needs all of
// the batch, so the number of batch norms on the longest way to a node says in which region it is.
// In forward the statistics are gathered before the region that reads the batch norm, in backward
// the sums before that of its convolution. So the batch norms of a block's last convolution and of
// its skip branch share one in forward, those of its first convolution and of its skip branch one
// in backward.

namespace {

/// By node: batch norms on the longest way to it, itself included.
std::vector<std::size_t> depths(const nn::Network& network) {
  std::vector<std::size_t> depth(network.nodes.size(), 0);
  for (std::size_t n = 0; n < network.nodes.size(); ++n) {
    for (const std::size_t input : network.nodes[n].inputs)
      depth[n] = std::max(depth[n], depth[input]);
    if (network.nodes[n].op == nn::Op::batch_norm) ++depth[n];
  }
  return depth;
}

/// The step of backward after which this node's gradients are final, in which its sums are needed.
std::size_t step_of(const backend::TimedTape& tape, const nn::ArenaLayout& layout,
                    std::size_t node) {
  for (std::size_t step = 0; step < tape.backward.size(); ++step)
    for (const std::size_t slice : tape.backward[step].final_slices)
      if (layout.slices[slice].tensor.node == node) return step;
  throw Error("a tape leaves a batch norm without its gradient");
}

}  // namespace

std::vector<NormGather> norm_gathers(const nn::Network& network) {
  const std::vector<std::size_t> depth = depths(network);
  const auto readers = nn::readers(network);
  std::map<std::size_t, NormGather> forward, backward;
  const auto add = [&](NormGather& gather, std::size_t norm) {
    if (gather.norms.empty()) gather.floats = 1;  // the rank's rows
    gather.norms.push_back(norm);
    gather.floats += 2 * network.nodes[norm].shape.channels;
  };
  for (std::size_t n = 0; n < network.nodes.size(); ++n) {
    if (network.nodes[n].op != nn::Op::batch_norm) continue;
    add(forward[depth[readers[n].front()]], n);
    add(backward[depth[n]], n);
  }
  std::vector<NormGather> all;
  for (const auto& [at, gather] : forward) all.push_back(gather);
  for (auto& [at, gather] : backward) {
    gather.backward = true;
    all.push_back(gather);
  }
  return all;
}

backend::TimedTape with_gathers(const backend::TimedTape& tape, const nn::Network& network,
                                const GatherSeconds& gather_s) {
  const nn::ArenaLayout layout = backend::plain_layout(network);
  backend::TimedTape with = tape;
  for (const NormGather& gather : norm_gathers(network)) {
    const double ms = 1e3 * gather_s(gather.bytes());
    std::size_t first = gather.backward ? tape.backward.size() : 0;
    if (gather.backward)
      for (const std::size_t norm : gather.norms)
        first = std::min(first, step_of(tape, layout, norm));
    (gather.backward ? with.backward : with.forward).at(first).ms += ms;
  }
  return with;
}

StepTimeline simulate_step(const backend::TimedTape& tape, const nn::Network& network,
                           std::size_t bucket_bytes, const CostOf& cost,
                           const GatherSeconds& gather_s) {
  const backend::TimedTape with = with_gathers(tape, network, gather_s);
  StepTimeline step = simulate_step(with, backend::plain_layout(network), bucket_bytes, cost);
  step.norms_ms = with.forward_ms() - tape.forward_ms() + with.backward_ms() - tape.backward_ms();
  step.forward_ms = tape.forward_ms();
  step.backward_ms = tape.backward_ms();
  return step;
}

}  // namespace lockstep::study
