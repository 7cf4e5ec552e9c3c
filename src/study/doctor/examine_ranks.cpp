#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/comm/record.hpp"
#include "study/doctor/examination.hpp"

namespace lockstep::study {
namespace {

/// Of what ranks wait for, from which on the network's latency is the reason: a step has several
/// exchanges.
constexpr double least_latency_share = 0.2;

/// How often the sums that a step makes are all-reduces of its gradients.
bool sums_alike(reduce::ExchangeKind kind) {
  using enum reduce::ExchangeKind;
  return kind == exact || kind == bf16 || kind == fp16;
}

}  // namespace

/// What the ranks hold, each once, as a run's records count it.
void Examination::count_devices() {
  std::set<std::pair<std::string, std::string>> gpus;
  std::set<std::pair<std::string, int>> cores;
  for (const RankPost& post : posts_) {
    if (!post.gpu.empty()) gpus.insert({post.host, post.gpu});
    for (const int core : post.cores.empty() ? post.cpus : post.cores)
      cores.insert({post.host, core});
  }
  diagnosis_.devices = static_cast<double>(diagnosis_.on_gpus ? gpus.size() : cores.size());
}

/// The training as it is, between two looks at what else used the ranks' cores.
void Examination::look_at_ranks() {
  constexpr double share_of_all = 0.08;
  const train::RunSpec& spec = run_.spec();
  const RankPost mine{spec.allocation.host, ::getpid(), cluster::current_cpus(), spec.cores,
                      spec.gpu_pci_bus_id};
  posts_ = comm::gather_records(control_, mine, "the ranks' posts");
  count_devices();
  std::set<int> ours;
  for (const RankPost& post : posts_)
    if (post.host == mine.host) ours.insert(post.process);

  const double until_s = turns_.left_s() * (1 - share_of_all);
  const std::uint64_t first = turns_.steps_done();
  const MachineState before = look_at_machine(mine.cpus, ours);
  const double began_s = now_s();
  std::vector<double> blocks_ms;
  do blocks_ms.push_back(Turns::slowest(turns_.block(as_is())));
  while (turns_.left_s() > until_s && !turns_.stopped());
  diagnosis_.step_ms = lower_median(blocks_ms);
  const Disturbance seen = between(before, look_at_machine(mine.cpus, ours));
  looked_s_ = now_s() - began_s;
  looked_steps_ = turns_.steps_done() - first;
  disturbed_ = comm::gather_records(control_, seen, "the ranks' troubles");
}

void Examination::examine_sums() {
  const char* wire = "what the network carries";
  const char* wait = "waiting for other ranks";
  const auto neither = [&](const std::string& why) {
    not_measured(SlowReason::communication, wire, why);
    not_measured(SlowReason::communication, wait, why);
  };
  if (control_.world() == 1) return neither("there is one rank");
  const auto apart = examine_norms();
  if (!sums_alike(run_.trainer_spec().exchange))
    return neither(
        fmt::format("the exchange '{}' does not sum by all-reduces", trainer_->exchange().name()));
  if (over()) return neither(why_over());
  std::string why;
  const auto small = variant(run_.trainer_spec(), small_, why);
  const auto silent = variant(run_.trainer_spec(), silent_, why);
  if (!small || !silent) return neither(why);
  examine_wire(apart ? *apart : *trainer_, *small);
  examine_skew(*small, *silent);
}

/// The training as it is against one whose batch norms take each rank's rows alone. Returns that
/// one, which ranks are then compared with: those of groups that are cut off gather nothing either.
std::unique_ptr<train::Trainer> Examination::examine_norms() {
  train::TrainerSpec spec = run_.trainer_spec();
  if (spec.norm_ranks == 1) return nullptr;
  const std::string what = fmt::format(
      "batch norm's statistics of {} ranks: gathers, and waiting for these ranks", spec.norm_ranks);
  spec.norm_ranks = 1;
  std::string why = why_over();
  std::unique_ptr<train::Trainer> trainer;
  if (!over()) trainer = variant(spec, run_.reducing(), why);
  if (!trainer) {
    not_measured(SlowReason::communication, what, why);
    return nullptr;
  }
  const Arm is = held(*trainer_), apart = held(*trainer);
  turns_.block(apart);
  ++comparisons_left_;
  const Interval cost = turns_.compare({is}, {apart}, share_of_rest()).difference;
  add({.reason = SlowReason::communication,
       .what = what,
       .cost = cost,
       .change = "--model-options.norm-ranks 1, which changes what is learned",
       .effect = cost});
  return trainer;
}

void Examination::examine_wire(train::Trainer& whole, train::Trainer& small) {
  const Arm is = held(whole), tiny = held(small);
  turns_.block(tiny);
  SlowCause finding{.reason = SlowReason::communication,
                    .what = "what the network carries: sums of gradients against sums of 4 bytes",
                    .cost = turns_.compare({is}, {tiny}, share_of_rest()).difference};
  train::TrainerSpec spec = run_.trainer_spec();
  spec.norm_ranks = 1;
  if (worth_changing(finding, diagnosis_.step_ms) && !over() &&
      spec.exchange == reduce::ExchangeKind::exact && spec.shards == 0) {
    spec.exchange = reduce::ExchangeKind::bf16;
    std::string why;
    finding.effect = gain_by(whole, spec, why);
    if (finding.effect) finding.change = "--comm.wire bf16";
  }
  add(std::move(finding));
}

/// The least time in which ranks agree on a number: the network's latency, some times over.
double Examination::agreement_ms() {
  constexpr int times = 20;
  double least_ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    const double began_ms = now_ms();
    control_.max({0.0}, "an agreement of the doctor");
    least_ms = std::min(least_ms, now_ms() - began_ms);
  }
  return least_ms;
}

/// Sums of 4 bytes, where all wait for the slowest, against each rank's own time without any: in a
/// block the ranks' mean, because of two ranks one is always the faster by chance. A rank that is
/// slow in all blocks counts as what it is slower than usual.
void Examination::examine_skew(train::Trainer& small, train::Trainer& silent) {
  if (over()) return not_measured(SlowReason::communication, "waiting for other ranks", why_over());
  const Arm tiny = held(small), none = alone(silent);
  turns_.block(none);
  auto found = turns_.compare({tiny}, {none, mean}, share_of_rest());
  const std::vector<double>& alone_ms = found.b_ranks;
  const auto slow = std::max_element(alone_ms.begin(), alone_ms.end());
  const auto rank = static_cast<std::size_t>(slow - alone_ms.begin());
  const double usual_ms = Turns::usual(alone_ms), late_ms = *slow - usual_ms;
  found.difference = found.difference - (usual_ms - mean(alone_ms));
  // What is left counts on its own when it is a fifth of the whole, or the network's.
  const double rest_ms = found.difference.middle - late_ms, agreement = agreement_ms();
  const bool network = agreement >= least_latency_share * rest_ms;
  const bool apart =
      rest_ms >= (network ? least_share * diagnosis_.step_ms : 0.2 * found.difference.middle);
  if (late_ms >= 0.5 * found.difference.middle || late_ms >= least_share * diagnosis_.step_ms) {
    late_ = Late{diagnosis_.findings.size(), rank};
    const std::string& host = posts_.at(rank).host;
    add({.reason = SlowReason::communication,
         .what = fmt::format("waiting for a slow rank: rank {} on {} computes {:.2f} ms a step, "
                             "usual are {:.2f}",
                             rank, host, *slow, usual_ms),
         .cost = found.difference - (apart ? rest_ms : 0),
         .change = fmt::format("look at {} (lockstep preflight)", host)});
    if (!apart) return;
  }
  SlowCause rest{.reason = SlowReason::communication,
                 .what = "waiting for other ranks, which are late in turns",
                 .cost = found.difference - (late_ ? late_ms : 0)};
  if (network) {
    rest.what = fmt::format(
        "waiting for the network, not for ranks: even sums of 4 bytes wait, and an agreement of "
        "all ranks alone takes {:.2f} ms",
        agreement);
    rest.change = "nodes that are nearer to each other, or larger batches for fewer steps";
  }
  add(std::move(rest));
}

/// What the system counted while the training was looked at, a step; without an interval.
Interval Examination::counted_cost(double seconds) const {
  return exactly(1e3 * seconds / static_cast<double>(looked_steps_));
}

std::size_t Examination::compute_threads(std::size_t rank) const {
  return run_.config().threads > 0 ? run_.config().threads
                                   : std::max<std::size_t>(1, posts_.at(rank).cpus.size());
}

/// A rank lost what its threads did not compute, at most for as long as its group was stopped: that
/// is counted for each processor, and not alike by all kernels. Of a host's ranks, the one that
/// waited least for other things tells it.
double Examination::stopped_by_quota_s() const {
  std::map<std::string, double> lost_s;
  for (std::size_t rank = 0; rank < disturbed_.size(); ++rank) {
    const Disturbance& one = disturbed_[rank];
    const double idle_s = looked_s_ - one.ran_s / static_cast<double>(compute_threads(rank));
    const double mine_s = std::clamp(idle_s, 0.0, std::max(0.0, one.throttled_s));
    const auto [host, is_new] = lost_s.try_emplace(posts_[rank].host, mine_s);
    if (!is_new) host->second = std::min(host->second, mine_s);
  }
  double most_s = 0;
  for (const auto& [host, seconds] : lost_s) most_s = std::max(most_s, seconds);
  return most_s;
}

void Examination::judge_machine() {
  std::size_t worst = 0;
  for (std::size_t rank = 1; rank < disturbed_.size(); ++rank)
    if (disturbed_[rank].delay_s > disturbed_[worst].delay_s) worst = rank;
  judge_sharing();
  // The delays of a rank for which no one waits cost nothing.
  judge_stolen(late_ ? late_->rank : worst);
  const auto most = [&](double Disturbance::*figure) {
    return std::max_element(
        disturbed_.begin(), disturbed_.end(),
        [&](const Disturbance& a, const Disturbance& b) { return a.*figure < b.*figure; });
  };
  const char* quota = "the control group's quota of processor time";
  if (most(&Disturbance::throttled_s)->throttled_s < 0)
    not_measured(SlowReason::allocation, quota, "this system does not count it");
  else
    add({.reason = SlowReason::allocation,
         .what = quota,
         .cost = counted_cost(stopped_by_quota_s()),
         .change = "more processors for the job, or fewer --threads"});
  const auto stolen = most(&Disturbance::steal_s);
  const auto rank = static_cast<std::size_t>(stolen - disturbed_.begin());
  const auto own = static_cast<double>(std::max<std::size_t>(1, posts_.at(rank).cpus.size()));
  add({.reason = SlowReason::allocation,
       .what = "processor time that the hypervisor gave to other machines",
       .cost = counted_cost(stolen->steal_s / own),
       .change = "another machine"});
  std::uint64_t pages = 0;
  double held_back = -1;
  for (const Disturbance& one : disturbed_) {
    pages += one.swapped_pages;
    held_back = std::max(held_back, one.held_back);
  }
  if (pages == 0 && held_back <= 0)
    return add({.reason = SlowReason::memory,
                .what = held_back < 0 ? "nothing was swapped; whether the control group was held "
                                        "back is not counted here"
                                      : "nothing was swapped or held back meanwhile",
                .cost = Interval{}});
  not_measured(SlowReason::memory, "a lack of memory",
               fmt::format("{} pages were swapped, the group was held back {:.0f} times; "
                           "their time is in the step's",
                           pages, std::max(0.0, held_back)));
}

/// A rank is slow because it lost that much: then this is the reason, not the rank.
void Examination::explain(std::size_t rank, double ms) {
  if (!late_ || late_->rank != rank || ms <= 0) return;
  SlowCause& finding = diagnosis_.findings.at(late_->finding);
  for (double Interval::*part : {&Interval::middle, &Interval::low, &Interval::high})
    (*finding.cost).*part = std::max(0.0, (*finding.cost).*part - ms);
  finding.what += fmt::format("; without {:.2f} ms in which it had no core", ms);
}

/// Ranks whose threads are more than the processors that they share.
void Examination::judge_sharing() {
  for (std::size_t a = 0; a < posts_.size(); ++a)
    for (std::size_t b = a + 1; b < posts_.size(); ++b) {
      if (posts_[a].host != posts_[b].host) continue;
      const cluster::CpuSet both = cluster::common(posts_[a].cpus, posts_[b].cpus);
      const std::size_t all = cluster::joined(posts_[a].cpus, posts_[b].cpus).size();
      const std::size_t threads = compute_threads(a) + compute_threads(b);
      if (both.empty() || threads <= all) continue;
      return add({.reason = SlowReason::allocation,
                  .what = fmt::format("ranks {} and {} share the processors {} of {}: {} compute "
                                      "threads on {}",
                                      a, b, cluster::to_string(both), posts_[a].host, threads, all),
                  .cost = counted_cost(std::max(disturbed_[a].delay_s, disturbed_[b].delay_s)),
                  .change = "another binding, or fewer ranks a node"});
    }
}

/// The rank whose threads waited most for a core, where other programs used its cores meanwhile.
void Examination::judge_stolen(std::size_t rank) {
  const Disturbance& one = disturbed_.at(rank);
  const Interval cost = counted_cost(std::min(one.delay_s, one.others_s));
  explain(rank, cost.middle);
  add({.reason = SlowReason::allocation,
       .what = one.busiest.empty()
                   ? "other programs on the ranks' cores"
                   : fmt::format("other programs on the cores of rank {} on {}, most of all {}",
                                 rank, posts_.at(rank).host, one.busiest),
       .cost = cost,
       .change = "nodes or cores that no one else uses (--exclusive)"});
}

}  // namespace lockstep::study
