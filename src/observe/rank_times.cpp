#include "lockstep/observe/rank_times.hpp"

#include <fmt/core.h>

#include <utility>

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

}  // namespace lockstep::observe
