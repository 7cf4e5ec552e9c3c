#include "lockstep/study/what_if/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>
#include <utility>

#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/study/simulate/timeline.hpp"
#include "study/what_if/recorded_steps.hpp"

// Why it can be simulated from means alone. What a rank does itself is in its record: rows that it
// waits for, forward, backward, update. When buckets are full is known from the network's shape,
// up to backward's length. That leaves the network, of which only what the rank that waits least
// waits for is seen: it is the last to fill the buckets, so it waits for the wire alone. Sums that
// backward hides are not seen. So there are two readings of the wire, between which networks are:
// each bucket takes as long, or each byte does. The first hides less; it is the estimate, and the
// second widens the interval. A timeline has all of this measured, step by step.

namespace lockstep::study {
namespace {

using observe::StepTimes;
using Ranks = std::vector<StepTimes>;

constexpr std::size_t most_late_ranks = 16;
constexpr double most_error = 0.1;  // of the simulation, as a share of the recorded step

using observe::StepPart;
auto parts() { return std::views::filter(observe::step_parts, &StepPart::is_work); }

double usual_ms(const Ranks& ranks, double StepTimes::*part) {
  std::vector<double> values;
  for (const StepTimes& one : ranks) values.push_back(one.*part);
  return lower_median(std::move(values));
}

/// What makes a step of some ranks another one.
struct Otherwise {
  std::function<void(Ranks&)> ranks = [](Ranks&) {};
  double network = 1;  ///< how many times as fast
};

/// What decides how long a bucket moves.
enum class Wire { by_bucket, by_byte };

/// The run's steps as the simulator wants them.
class Steps {
 public:
  Steps(const RecordedSteps& recorded, Wire wire) : recorded_(recorded), wire_(wire) {
    for (const RecordedBucket& bucket : recorded.buckets) {
      nn::Slice slice;
      slice.offset = layout_.size;
      slice.size = bucket.floats;
      layout_.slices.push_back(slice);
      layout_.size += bucket.floats;
    }
    for (const Ranks& ranks : recorded.steps)
      wire_ms_.push_back(recorded.traced() ? 0 : fitted_wire_ms(ranks));
    as_is_ms_ = steps_ms({});
  }

  std::vector<double> recorded_ms() const {
    std::vector<double> all;
    for (const Ranks& ranks : recorded_.steps) {
      std::vector<double> totals;
      for (const StepTimes& times : ranks) totals.push_back(times.total_ms());
      all.push_back(recorded_.traced() ? mean(totals) : lower_median(std::move(totals)));
    }
    return all;
  }
  const std::vector<double>& as_is_ms() const { return as_is_ms_; }

  /// By step: how much shorter it is.
  std::vector<double> gains_ms(const Otherwise& otherwise) const {
    std::vector<double> gains = steps_ms(otherwise);
    for (std::size_t i = 0; i < gains.size(); ++i) gains[i] = as_is_ms_[i] - gains[i];
    return gains;
  }

 private:
  std::vector<double> steps_ms(const Otherwise& otherwise) const {
    if (recorded_.traced()) return traced_ms(otherwise);
    std::vector<double> all;
    for (std::size_t step = 0; step < recorded_.steps.size(); ++step) {
      Ranks ranks = recorded_.steps[step];
      otherwise.ranks(ranks);
      all.push_back(longest_ms(simulate_ranks(tapes_of(ranks), layout_, 1,  // a slice is a bucket
                                              cost_of(wire_ms_[step] / otherwise.network))));
    }
    return all;
  }

  /// One step after the other: a rank that ended one late begins the next one late. Mean of ranks.
  std::vector<double> traced_ms(const Otherwise& otherwise) const {
    std::vector<std::vector<backend::TimedTape>> tapes;
    std::vector<CostOf> costs;
    for (std::size_t step = 0; step < recorded_.steps.size(); ++step) {
      Ranks ranks = recorded_.steps[step];
      otherwise.ranks(ranks);
      tapes.push_back(tapes_of(ranks));
      costs.push_back([&moves_ms = recorded_.moves_ms[step], bucket = std::size_t{0},
                       network = otherwise.network](double) mutable {  // asked in their order
        return ReduceCost{.busy_s = 1e-3 * moves_ms[bucket++ % moves_ms.size()] / network};
      });
    }
    std::vector<double> all;
    for (const auto& ranks : simulate_unlike_steps(tapes, layout_, 1, costs)) {
      std::vector<double> totals;
      for (const StepTimeline& one : ranks) totals.push_back(one.step_ms());
      all.push_back(mean(totals));
    }
    return all;
  }

  /// `wire_ms`: of each bucket, or of each byte.
  CostOf cost_of(double wire_ms) const {
    return [this, wire_ms](double bytes) {
      return ReduceCost{.busy_s = 1e-3 * wire_ms * (wire_ == Wire::by_byte ? bytes : 1)};
    };
  }

  /// How long each bucket or byte takes where the rank that waits least waits as long as it did.
  double fitted_wire_ms(const Ranks& ranks) const {
    double target_ms = ranks.front().exposed_comm_ms;
    for (const StepTimes& one : ranks) target_ms = std::min(target_ms, one.exposed_comm_ms);
    const auto exposed_ms = [&](double wire_ms) {
      const auto steps = simulate_ranks(tapes_of(ranks), layout_, 1, cost_of(wire_ms));
      double least = steps.front().exposed_ms;
      for (const StepTimeline& one : steps) least = std::min(least, one.exposed_ms);
      return least;
    };
    double low = 0, high = 1e-9;  // as if a byte moved at 10^12 bytes a second
    if (ranks.size() < 2 || layout_.size == 0) return low;
    for (int i = 0; i < 60 && exposed_ms(high) < target_ms; ++i)
      low = std::exchange(high, 2 * high);
    for (int i = 0; i < 40; ++i) {
      const double middle = (low + high) / 2;
      (exposed_ms(middle) < target_ms ? low : high) = middle;
    }
    return low;
  }

  std::vector<backend::TimedTape> tapes_of(const Ranks& ranks) const {
    // In means, what some ranks have more of it than others is mostly waiting for these.
    double least_ms = ranks.front().other_ms;
    for (const StepTimes& one : ranks) least_ms = std::min(least_ms, one.other_ms);
    std::vector<backend::TimedTape> tapes;
    for (const StepTimes& one : ranks)
      tapes.push_back(tape_of(one, recorded_.traced() ? one.other_ms : least_ms));
    return tapes;
  }

  backend::TimedTape tape_of(const StepTimes& times, double other_ms) const {
    const double last_ms = times.backward_ms / static_cast<double>(recorded_.micro_batches);
    backend::TimedTape tape;
    tape.forward.push_back(
        {"", times.data_ms + other_ms + times.forward_ms + times.backward_ms - last_ms, {}});
    double at = 0;
    for (std::size_t b = 0; b < recorded_.buckets.size(); ++b) {
      const double full_at = std::max(at, recorded_.buckets[b].full_at);
      tape.backward.push_back({"", last_ms * (full_at - at), {b}});
      at = full_at;
    }
    tape.backward.push_back({"", last_ms * (1 - at), {}});
    tape.update_ms = times.update_ms;
    return tape;
  }

  static double longest_ms(const std::vector<StepTimeline>& steps) {
    double longest = 0;
    for (const StepTimeline& one : steps) longest = std::max(longest, one.step_ms());
    return longest;
  }

  const RecordedSteps& recorded_;
  Wire wire_;
  nn::ArenaLayout layout_;
  std::vector<double> wire_ms_, as_is_ms_;  ///< by step
};

class Suppositions {
 public:
  Suppositions(const RecordedSteps& recorded, const Steps& steps, WhatIf& result)
      : recorded_(recorded), steps_(steps), by_byte_(recorded, Wire::by_byte), result_(result) {
    means_ = recorded.steps.front();
    for (std::size_t step = 1; step < recorded.steps.size(); ++step)
      for (std::size_t rank = 0; rank < means_.size(); ++rank)
        means_[rank] += recorded.steps[step][rank];
    for (StepTimes& one : means_) one = one / static_cast<double>(recorded.steps.size());
  }

  void add_all() {
    const std::size_t world = recorded_.steps.front().size();
    if (world > 1) {
      add({.what = "every rank as fast as the median"}, {.ranks = [this](Ranks& ranks) {
            for (std::size_t rank = 0; rank < ranks.size(); ++rank)
              for (const StepPart& part : parts()) cut(ranks, rank, part.step);
          }});
      for (const std::size_t rank : late_ranks()) add_rank(rank);
    }
    add({.what = "no rank waits for rows", .part = "data"}, {.ranks = [](Ranks& ranks) {
          for (StepTimes& one : ranks) one.data_ms = 0;
        }});
    add({.what = "devices twice as fast"}, {.ranks = [](Ranks& ranks) {
          for (StepTimes& one : ranks)
            for (auto* ms : {&one.forward_ms, &one.backward_ms, &one.update_ms}) *ms /= 2;
        }});
    add_network(world);
  }

 private:
  /// What a rank's part is compared with. A single step's median would be that of the rank
  /// that was fast in it by chance; so a rank keeps its own chance, and all of its steps become
  /// shorter alike.
  const Ranks& compared(const Ranks& ranks) const { return recorded_.traced() ? means_ : ranks; }

  void cut(Ranks& ranks, std::size_t rank, double StepTimes::*part) const {
    const double own_ms = compared(ranks)[rank].*part, usual = usual_ms(compared(ranks), part);
    if (own_ms > usual) ranks[rank].*part *= usual / own_ms;
  }

  /// How much longer the rank's part is than the median one's.
  double excess_ms(std::size_t rank, double StepTimes::*part) const {
    std::vector<double> all;
    for (const Ranks& ranks : recorded_.steps)
      all.push_back(compared(ranks)[rank].*part - usual_ms(compared(ranks), part));
    return lower_median(std::move(all));
  }

  std::vector<std::size_t> late_ranks() const {
    std::vector<std::pair<double, std::size_t>> late;
    for (std::size_t rank = 0; rank < recorded_.steps.front().size(); ++rank) {
      double sum_ms = 0;
      for (const StepPart& part : parts()) sum_ms += std::max(0.0, excess_ms(rank, part.step));
      if (sum_ms > 0) late.push_back({-sum_ms, rank});
    }
    std::sort(late.begin(), late.end());
    if (late.size() > most_late_ranks) late.resize(most_late_ranks);
    std::vector<std::size_t> ranks;
    for (const auto& [sum_ms, rank] : late) ranks.push_back(rank);
    return ranks;
  }

  void add_rank(std::size_t rank) {
    add({.what = fmt::format("rank {} as fast as the median", rank), .rank = rank},
        {.ranks = [this, rank](Ranks& ranks) {
          for (const StepPart& part : parts()) cut(ranks, rank, part.step);
        }});
    for (const StepPart& part : parts())
      if (excess_ms(rank, part.step) > 0)
        add({.what = fmt::format("rank {} as fast as the median in {}", rank, part.name),
             .rank = rank,
             .part = part.name},
            {.ranks = [this, rank, part](Ranks& ranks) { cut(ranks, rank, part.step); }});
  }

  void add_network(std::size_t world) {
    Supposition faster{.what = "10 times the network", .part = "network"};
    if (world < 2) {
      faster.not_known = "there is one rank";
      result_.all.push_back(std::move(faster));
      return;
    }
    add(std::move(faster), {.network = 10});
    if (recorded_.traced()) return;
    result_.all.back().gain->low = 0;
    result_.limits.push_back(
        "10 times the network: at most that; means of an epoch do not tell the network from ranks "
        "that are late by turns, a timeline of CPUs does (--trace)");
  }

  void add(Supposition one, const Otherwise& otherwise) {
    one.gain = estimate_of(otherwise);
    result_.all.push_back(std::move(one));
  }

  /// Means of epochs have the spread of their steps no longer: the interval spans the epochs, and
  /// both readings of the wire.
  Interval estimate_of(const Otherwise& otherwise) const {
    std::vector<double> gains = steps_.gains_ms(otherwise);
    if (recorded_.traced()) return estimate_difference(gains);
    const double usual_ms = lower_median(gains);
    for (const double gain : by_byte_.gains_ms(otherwise)) gains.push_back(gain);
    return span_of(gains, usual_ms);
  }

  const RecordedSteps& recorded_;
  Ranks means_;  ///< over all steps
  const Steps& steps_;
  Steps by_byte_;  ///< as steps_ where there is a timeline
  WhatIf& result_;
};

}  // namespace

WhatIf suppose(const std::filesystem::path& run, const NewestStart& records) {
  const RecordedSteps recorded = read_recorded_steps(run, records);
  WhatIf result{.basis = recorded.basis,
                .not_known = recorded.not_known,
                .batch = recorded.batch,
                .limits = recorded.notes};
  if (!result.not_known.empty()) return result;
  const Steps steps(recorded, Wire::by_bucket);
  // Where a rank is late by chance, one step of a timeline has it or the next: their mean has both.
  const auto usual =
      recorded.traced() ? mean : [](const std::vector<double>& all) { return lower_median(all); };
  result.step_ms = usual(steps.recorded_ms());
  result.simulated_ms = usual(steps.as_is_ms());
  if (!(std::abs(result.simulated_ms - result.step_ms) <= most_error * result.step_ms)) {
    result.not_known =
        fmt::format("the simulation gives {:.2f} ms a step where {:.2f} were recorded ({})",
                    result.simulated_ms, result.step_ms, recorded.basis);
    return result;
  }
  if (recorded.steps.size() == 1)
    result.limits.push_back(
        "there is one mean: how steps or epochs differ is not in the intervals");
  Suppositions(recorded, steps, result).add_all();
  std::stable_sort(result.all.begin(), result.all.end(), [](const auto& a, const auto& b) {
    if (!a.gain || !b.gain) return a.gain.has_value();
    return a.gain->middle > b.gain->middle;
  });
  return result;
}

}  // namespace lockstep::study
