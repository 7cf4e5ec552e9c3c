#include "lockstep/observe/rank_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/log.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::observe {
namespace {

/// What one rank sends to rank 0.
struct RankSum {
  StepTimes times;

  static void fields(auto& self, auto&& visit) {
    auto& [data_ms, forward_ms, backward_ms, exposed_comm_ms, update_ms, other_ms] = self.times;
    visit(data_ms, forward_ms, backward_ms, exposed_comm_ms, update_ms, other_ms);
  }
};

std::vector<std::string> names_of(const comm::Nodes& nodes) {
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < nodes.world(); ++rank)
    names.push_back(
        fmt::format("rank {} on {}", rank, nodes.name_of(nodes.node_of(static_cast<int>(rank)))));
  return names;
}

}  // namespace

RankTimes::RankTimes(const comm::Nodes& nodes, const std::string& data)
    : stragglers_(names_of(nodes), data) {}

void RankTimes::Sums::add(const std::vector<StepTimes>& more, std::uint64_t more_steps) {
  ranks.resize(more.size());
  for (std::size_t rank = 0; rank < more.size(); ++rank) ranks[rank] += more[rank];
  steps += more_steps;
}

void RankTimes::add(const StepTimes& times, comm::Control& control) {
  mine_ += times;
  ++steps_;
  ++steps_of_epoch_;
  if (std::exchange(first_, false)) {
    gather(control);
    window_ = {};
  } else if (++steps_of_window_ == window) {
    gather(control);
    steps_of_window_ = 0;
    std::vector<StepTimes> means;
    for (const StepTimes& sum : window_.ranks)
      means.push_back(sum / static_cast<double>(window_.steps));
    if (!means.empty()) stragglers_.judge(means, window_.steps);
    window_ = {};
  }
}

std::optional<RanksRecord> RankTimes::end_epoch(comm::Control& control) {
  if (steps_of_epoch_ == 0) return std::nullopt;
  if (steps_ > 0) gather(control);
  steps_of_epoch_ = 0;
  const Sums epoch = std::exchange(epoch_, {});
  if (control.rank() != 0) return std::nullopt;
  return ranks_record(epoch.ranks, epoch.steps);
}

void RankTimes::gather(comm::Control& control) {
  std::vector<StepTimes> all;
  for (const RankSum& one :
       comm::gather_records_at_root(control, RankSum{mine_}, "comparison of step times"))
    all.push_back(one.times);
  window_.add(all, steps_);
  epoch_.add(all, steps_);
  mine_ = {};
  steps_ = 0;
}

namespace {

struct WorkPart {
  comm::Phase phase;
  double StepTimes::*time;
};
constexpr std::array<WorkPart, 4> work_parts{{{comm::Phase::data, &StepTimes::data_ms},
                                              {comm::Phase::forward, &StepTimes::forward_ms},
                                              {comm::Phase::backward, &StepTimes::backward_ms},
                                              {comm::Phase::update, &StepTimes::update_ms}}};

/// Without other_ms, which includes waiting: for the audit, for these comparisons.
double work_ms(const StepTimes& times) {
  return times.data_ms + times.forward_ms + times.backward_ms + times.update_ms;
}

template <class Of>
double usual(const std::vector<StepTimes>& ranks, Of of) {
  std::vector<double> values;
  for (const StepTimes& one : ranks) values.push_back(of(one));
  return lower_median(std::move(values));
}

double usual_step_ms(const std::vector<StepTimes>& ranks) {
  return usual(ranks, [](const StepTimes& times) { return times.total_ms(); });
}

}  // namespace

std::vector<Straggler> find_stragglers(const std::vector<StepTimes>& mean_times, double share) {
  std::vector<Straggler> found;
  const double usual_work_ms = usual(mean_times, work_ms);
  const double most_ms = share * usual_step_ms(mean_times);
  for (std::size_t rank = 0; rank < mean_times.size(); ++rank) {
    Straggler one{.rank = rank, .late_ms = work_ms(mean_times[rank]) - usual_work_ms};
    if (!(one.late_ms > most_ms)) continue;
    double lost_ms = 0;
    for (const auto& [phase, time] : work_parts) {
      const double mine = mean_times[rank].*time;
      const double theirs =
          usual(mean_times, [time = time](const StepTimes& t) { return t.*time; });
      if (mine - theirs <= lost_ms) continue;
      lost_ms = mine - theirs;
      one.phase = phase;
      one.phase_ms = mine;
      one.usual_phase_ms = theirs;
    }
    found.push_back(one);
  }
  return found;
}

std::optional<DataLimit> find_data_limit(const std::vector<StepTimes>& mean_times, double share) {
  const auto longest =
      std::max_element(mean_times.begin(), mean_times.end(),
                       [](const auto& a, const auto& b) { return a.data_ms < b.data_ms; });
  const DataLimit limit{.rank = static_cast<std::size_t>(longest - mean_times.begin()),
                        .wait_ms = longest->data_ms,
                        .step_ms = longest->total_ms()};
  if (limit.wait_ms < 1 || !(limit.share() > share)) return std::nullopt;
  return limit;
}

void StragglerWatch::judge(const std::vector<StepTimes>& mean_times, std::uint64_t steps) {
  tell_late(mean_times, steps);
  tell_data(mean_times, steps);
}

void StragglerWatch::tell_data(const std::vector<StepTimes>& ranks, std::uint64_t steps) {
  const auto limit = find_data_limit(ranks, data_share);
  const bool before = std::exchange(told_data_, limit.has_value());
  if (!limit || before) return;
  log::warn(fmt::format(
      "data is the limit: over {} steps {} waited for it for {:.1f} of a step's {:.1f} ms ({:.0f} "
      "%); without that, steps would be {:.1f} times as fast. 'lockstep bench data {}' shows which "
      "part of it is slow",
      steps, names_[limit->rank], limit->wait_ms, limit->step_ms, 100 * limit->share(),
      1 / std::max(0.001, 1 - limit->share()), data_));
}

void StragglerWatch::tell_late(const std::vector<StepTimes>& ranks, std::uint64_t steps) {
  constexpr int remembered = 11;  // windows: this one, and ten in which it is on time
  for (auto& [who, windows] : told_) --windows;
  std::erase_if(told_, [](const auto& one) { return one.second == 0; });
  for (const Straggler& one : find_stragglers(ranks, share)) {
    const std::string& who = names_[one.rank];
    const bool told = told_.contains(who);
    told_[who] = remembered;
    if (told) continue;
    const double step_ms = usual_step_ms(ranks);
    log::warn(fmt::format(
        "{} is late: over {} steps it kept the others waiting for {:.1f} ms a step ({:.0f} % of "
        "it), most of all in {} ({:.1f} ms, usual are {:.1f})",
        who, steps, one.late_ms, 100 * one.late_ms / step_ms, to_string(one.phase), one.phase_ms,
        one.usual_phase_ms));
  }
}

}  // namespace lockstep::observe
