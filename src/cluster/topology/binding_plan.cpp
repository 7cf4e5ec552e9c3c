#include "lockstep/cluster/topology/binding_plan.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

using Cards = std::vector<const NetworkCard*>;

/// The cards for which `measure` is largest.
template <class Measure>
Cards best_by(const Cards& cards, Measure measure) {
  Cards best;
  for (const NetworkCard* card : cards) {
    if (best.empty() || measure(*card) > measure(*best.front())) best.clear();
    if (best.empty() || measure(*card) == measure(*best.front())) best.push_back(card);
  }
  return best;
}

std::size_t common_length(const PciPath& a, const PciPath& b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

/// The machine's GPU with this bus id, in upper or lower case; null when there is none.
const Gpu* find_gpu(const Machine& machine, const std::string& pci_bus_id) {
  for (const Gpu& gpu : machine.gpus)  // CUDA and hwloc write the hexadecimal digits differently
    if (strcasecmp(gpu.pci_bus_id.c_str(), pci_bus_id.c_str()) == 0) return &gpu;
  return nullptr;
}

// A far HCA still moves gradients faster than an Ethernet port next to the GPU.
/// The network card of a rank with this share and GPU (null: no GPU); see plan_binding(). `turn`
/// chooses among equally near cards for a rank without a GPU. Null when no card is known.
const NetworkCard* nearest_network(const Machine& machine, const CpuSet& share, const Gpu* gpu,
                                   std::size_t turn) {
  Cards cards;
  for (const NetworkCard& card : machine.networks) cards.push_back(&card);
  if (cards.empty()) return nullptr;
  cards = best_by(cards, [](const NetworkCard& card) { return card.up; });
  cards = best_by(cards, [](const NetworkCard& card) { return card.hca; });
  if (!gpu) {
    cards = best_by(cards,
                    [&](const NetworkCard& card) { return common(card.near_cpus, share).size(); });
    return cards[turn % cards.size()];
  }
  const auto how_near = [&](const NetworkCard& card) {
    return common_length(card.path, gpu->path);
  };
  cards = best_by(cards, how_near);
  // The GPUs that are as near to these cards as this one take turns.
  std::size_t before = 0;
  for (const Gpu* other = machine.gpus.data(); other != gpu; ++other)
    before += common_length(other->path, cards.front()->path) == how_near(*cards.front());
  return cards[before % cards.size()];
}

}  // namespace

namespace {

/// Index in machine.numa of the first node that holds all of `cpus`; numa.size() when none does.
std::size_t node_holding(const Machine& machine, const CpuSet& cpus) {
  const auto holds = [&](const NumaNode& node) { return contains(node.cpus, cpus); };
  return static_cast<std::size_t>(std::find_if(machine.numa.begin(), machine.numa.end(), holds) -
                                  machine.numa.begin());
}

/// The CPUs in `pool` of each physical core, in NUMA order, so that contiguous blocks of cores stay
/// near their memory.
std::vector<CpuSet> cores_in(const Machine& machine, const CpuSet& pool) {
  std::vector<std::pair<std::size_t, CpuSet>> placed;
  for (const CpuSet& core : machine.cores)
    if (CpuSet part = common(core, pool); !part.empty())
      placed.emplace_back(node_holding(machine, part), std::move(part));
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CpuSet> cores;
  for (auto& [node, core] : placed) cores.push_back(std::move(core));
  return cores;
}

/// Part `index` of `parts` contiguous ones whose sizes differ by at most one core. Both ends are
/// rounded down: when the ranks divide evenly among equal NUMA nodes, parts end where nodes end.
/// With more parts than cores, neighbours share a core.
CpuSet part_of(const std::vector<CpuSet>& cores, std::size_t index, std::size_t parts) {
  check(!cores.empty(), "the machine's cores do not hold its allowed CPUs");
  const std::size_t begin = index * cores.size() / parts;
  const std::size_t end = std::max((index + 1) * cores.size() / parts, begin + 1);
  CpuSet part;
  for (std::size_t core = begin; core < end; ++core) part = joined(part, cores[core]);
  return part;
}

/// The division of one machine among its local ranks.
class Division {
 public:
  Division(const Machine& machine, const PlanRequest& request)
      : machine_(machine),
        pool_(request.already_bound.empty() ? machine.allowed
                                            : common(machine.allowed, request.already_bound)),
        shares_(request.launcher_divided ? 1 : static_cast<std::size_t>(request.local_size)),
        mine_(request.launcher_divided ? 0 : static_cast<std::size_t>(request.local_rank)) {
    require(!pool_.empty(),
            fmt::format("none of the CPUs that the launcher gave this rank ({}) is among those "
                        "that the machine allows ({}): start it without binding (mpirun --bind-to "
                        "none, srun --cpu-bind=none)",
                        to_string(request.already_bound), to_string(machine.allowed)));
    std::vector<CpuSet> domains = domains_near_gpus(request);
    fill_empty(domains);
    divide(domains);
  }

  const CpuSet& pool() const { return pool_; }
  const CpuSet& share() const { return shares_[mine_]; }
  /// Ranks that divide the same domain as this one, itself included.
  std::size_t peers() const { return peers_; }
  std::size_t domain_cores() const { return domain_cores_; }

  std::vector<std::size_t> ranks_on(const CpuSet& cpus) const {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < shares_.size(); ++rank)
      if (rank != mine_ && !common(shares_[rank], cpus).empty()) ranks.push_back(rank);
    return ranks;
  }

 private:
  /// For each local rank, the CPUs that it divides with the ranks of the same domain. Empty without
  /// a GPU, and for a GPU that has no allowed CPU near it.
  std::vector<CpuSet> domains_near_gpus(const PlanRequest& request) const {
    std::vector<CpuSet> domains(shares_.size());
    for (std::size_t rank = 0; rank < domains.size(); ++rank) {
      std::string id = request.gpu_pci_bus_id;
      if (rank != mine_ && rank < request.local_gpus.size())
        id = request.local_gpus[rank];
      else if (rank != mine_ && !id.empty())
        id = rank < machine_.gpus.size() ? machine_.gpus[rank].pci_bus_id : "";
      if (const Gpu* gpu = id.empty() ? nullptr : find_gpu(machine_, id))
        domains[rank] = common(gpu->near_cpus, pool_);
    }
    return domains;
  }

  /// Ranks without a domain get the CPUs that are in no domain, or the whole pool when every CPU is
  /// in one.
  void fill_empty(std::vector<CpuSet>& domains) const {
    CpuSet rest = pool_;
    for (const CpuSet& domain : domains) rest = without(rest, domain);
    if (rest.empty()) rest = pool_;
    for (CpuSet& domain : domains)
      if (domain.empty()) domain = rest;
  }

  void divide(const std::vector<CpuSet>& domains) {
    std::map<CpuSet, std::vector<std::size_t>> ranks_of;
    for (std::size_t rank = 0; rank < domains.size(); ++rank)
      ranks_of[domains[rank]].push_back(rank);
    for (const auto& [domain, ranks] : ranks_of) {
      const std::vector<CpuSet> cores = cores_in(machine_, domain);
      for (std::size_t i = 0; i < ranks.size(); ++i)
        shares_[ranks[i]] = part_of(cores, i, ranks.size());
      if (domain != domains[mine_]) continue;
      peers_ = ranks.size();
      domain_cores_ = cores.size();
    }
  }

  const Machine& machine_;
  CpuSet pool_;                 ///< what all local ranks together may use
  std::vector<CpuSet> shares_;  ///< each local rank's part of it
  std::size_t mine_;
  std::size_t peers_ = 0, domain_cores_ = 0;
};

/// Some more than one are for tests and for measuring.
constexpr std::size_t most_on_a_core = 16;

/// As many threads as a quota feeds: with more, all would be stopped in each of its periods.
void fill_threads(const Machine& machine, std::size_t wanted, double quota, Plan& plan) {
  const std::vector<CpuSet> cores = cores_in(machine, plan.share);
  const auto all = static_cast<double>(cores.size());
  const auto fed = static_cast<std::size_t>(std::ceil(std::min(quota, all)));
  const std::size_t threads = wanted == 0 ? fed : wanted;
  require(threads <= most_on_a_core * cores.size(),
          fmt::format("threads = {}: this rank has {}, on which that many would only wait for each "
                      "other; leave it out (one for each core), or give {} at most",
                      threads, counted(cores.size(), "core"), most_on_a_core * cores.size()));
  for (std::size_t thread = 0; thread < threads; ++thread)
    plan.compute.push_back(cores[thread % cores.size()]);
  for (std::size_t core = threads; core < cores.size(); ++core)
    plan.loader = joined(plan.loader, cores[core]);
  const double left = std::max(quota - static_cast<double>(threads), 0.0);
  plan.spare = static_cast<std::size_t>(std::min(left, static_cast<double>(plan.loader.size())));
  if (quota < all)
    plan.remarks.push_back(fmt::format("a cgroup's quota gives the time of {:.3g} of {}: {}{}",
                                       quota, counted(cores.size(), "core"),
                                       counted(threads, "thread"),
                                       wanted > fed ? ", which will be stopped at times" : ""));
  plan.loader_shares_cores = plan.loader.empty();
  if (plan.loader_shares_cores) plan.loader = plan.share;
  if (threads > cores.size())
    plan.remarks.push_back(
        fmt::format("{} compute threads share {}", threads, counted(cores.size(), "core")));
}

void remark_on_gpu(const Machine& machine, const Division& division, Plan& plan) {
  if (plan.gpu_pci_bus_id.empty()) return;
  const Gpu* gpu = find_gpu(machine, plan.gpu_pci_bus_id);
  if (!gpu)
    plan.remarks.push_back(fmt::format(
        "GPU {} is not in the machine's description: its place does not affect the binding",
        plan.gpu_pci_bus_id));
  else if (common(gpu->near_cpus, division.pool()).empty())
    plan.remarks.push_back(fmt::format("no CPU near GPU {} ({}) is allowed ({}): kept {}",
                                       plan.gpu_pci_bus_id, to_string(gpu->near_cpus),
                                       to_string(division.pool()), to_string(plan.share)));
}

void choose_network(const Machine& machine, const PlanRequest& request, Plan& plan) {
  const Gpu* gpu = plan.gpu_pci_bus_id.empty() ? nullptr : find_gpu(machine, plan.gpu_pci_bus_id);
  const NetworkCard* card =
      nearest_network(machine, plan.share, gpu, static_cast<std::size_t>(request.local_rank));
  if (!card) return;
  plan.network = card->name;
  const std::string whom = gpu ? fmt::format("GPU {}", gpu->pci_bus_id) : "the share";
  if (common(card->near_cpus, gpu ? gpu->near_cpus : plan.share).empty())
    plan.remarks.push_back(fmt::format("no network card is near {}: {} is near CPUs {}", whom,
                                       card->name, to_string(card->near_cpus)));
  if (!card->up) plan.remarks.push_back(fmt::format("the network card {} is down", card->name));
}

void remark_on_share(const Machine& machine, const Division& division, Plan& plan) {
  if (division.peers() > division.domain_cores())
    plan.remarks.push_back(
        fmt::format("{} ranks on {}", division.peers(), counted(division.domain_cores(), "core")));
  else if (const auto others = division.ranks_on(plan.share); !others.empty())
    plan.remarks.push_back(fmt::format("shares CPUs with local rank{} {}",
                                       others.size() == 1 ? "" : "s", join(others, ", ")));
  if (plan.numa_node < 0 && machine.numa.size() > 1)
    plan.remarks.push_back("the share spans NUMA nodes: memory is not bound");
}

/// Cores outside the launcher's binding cannot be used by any of its ranks.
void remark_on_launcher(const Machine& machine, const PlanRequest& request, Plan& plan) {
  const CpuSet& bound =
      request.bound_together.empty() ? request.already_bound : request.bound_together;
  const std::size_t given = cores_in(machine, common(machine.allowed, bound)).size();
  const std::size_t there = cores_in(machine, machine.allowed).size();
  if (bound.empty() || given == there) return;
  plan.remarks.push_back(fmt::format(
      "the launcher's binding uses {} of {} allowed cores ({}){}", given, there, to_string(bound),
      cores_in(machine, plan.share).size() == 1
          ? ": mpirun binds a rank to one core unless told --bind-to none, with which lockstep "
            "divides the machine"
          : ""));
}

}  // namespace

Plan plan_binding(const Machine& machine, const PlanRequest& request) {
  check(request.local_rank >= 0 && request.local_rank < request.local_size,
        "plan_binding: local_rank must be below local_size");
  const Division division(machine, request);
  Plan plan;
  plan.share = division.share();
  if (const std::size_t node = node_holding(machine, plan.share); node < machine.numa.size())
    plan.numa_node = machine.numa[node].os_index;
  plan.gpu_pci_bus_id = request.gpu_pci_bus_id;
  plan.foreign = machine.foreign;
  remark_on_gpu(machine, division, plan);
  remark_on_share(machine, division, plan);
  remark_on_launcher(machine, request, plan);
  choose_network(machine, request, plan);
  fill_threads(machine, request.compute_threads, request.quota_cores, plan);
  return plan;
}

PlanRequest request_among(const std::vector<LocalRank>& ranks, std::size_t mine,
                          std::size_t compute_threads) {
  check(mine < ranks.size(), "request_among: no such rank");
  PlanRequest request;
  request.local_size = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    request.bound_together = joined(request.bound_together, ranks[rank].mask);
    if (ranks[rank].mask != ranks[mine].mask) continue;
    if (rank == mine) request.local_rank = request.local_size;
    request.local_gpus.push_back(ranks[rank].gpu_pci_bus_id);
    ++request.local_size;
  }
  request.compute_threads = compute_threads;
  request.already_bound = ranks[mine].mask;
  request.launcher_divided = request.local_size == 1 && ranks.size() > 1;
  request.gpu_pci_bus_id = ranks[mine].gpu_pci_bus_id;
  return request;
}

std::size_t choose_gpu(const RankInfo& rank, std::size_t visible, bool share) {
  check(visible > 0, "choose_gpu: there is no GPU");
  if (visible == 1) return 0;
  const auto local_rank = static_cast<std::size_t>(rank.local_rank);
  if (share) return local_rank % visible;
  require(static_cast<std::size_t>(rank.local_size) <= visible,
          fmt::format("{0} ranks were started on {1}, but {2} GPUs are visible there: start {2} "
                      "(mpirun --map-by ppr:{2}:node, srun --ntasks-per-node={2}), or ask for {0} "
                      "GPUs (--gpus-per-node={0}); for tests, --share-gpu lets ranks share one",
                      rank.local_size, rank.host, visible));
  return local_rank;
}

void require_own_gpus(const std::vector<GpuUse>& ranks) {
  std::map<std::pair<std::string, std::string>, std::size_t> user_of;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [user, is_new] =
        user_of.try_emplace({ranks[rank].machine, ranks[rank].pci_bus_id}, rank);
    require(is_new,
            fmt::format("ranks {} and {} both use the GPU {} of one machine, which NCCL does not "
                        "allow: start one rank for each GPU, and show all of them to each rank "
                        "(srun --gpus-per-node) or another one (CUDA_VISIBLE_DEVICES). For tests, "
                        "and for the parts of a MIG device, --share-gpu lets ranks share one, "
                        "slowly",
                        user->second, rank, ranks[rank].pci_bus_id));
  }
}

}  // namespace lockstep::cluster
