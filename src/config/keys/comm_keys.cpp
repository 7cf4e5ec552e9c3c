#include "config/key.hpp"

namespace lockstep::config {

std::vector<ConfigKey> comm_keys() {
  using Section = C::Comm;
  return {
      key("comm.bucket-mb", &C::comm, &Section::bucket_mb,
          "gradients are reduced in buckets of this size: 10^6 bytes, or 25MB; auto: 1 on one "
          "node, "
          "25 on GPUs, else by what an all-reduce costs, which is measured")
          .within(0.001, 4096)
          .or_zero()
          .or_auto()
          .size(1e6, false)
          .between_ranks(),
      key("comm.all-reduce", &C::comm, &Section::all_reduce,
          "on CPUs: sum all ranks alike, or first the ranks of a node, in shared memory; auto: the "
          "latter on several nodes with several ranks")
          .between_ranks(),
      key("comm.wire", &C::comm, &Section::wire,
          "the format in which gradients travel: bf16 and fp16 halve their bytes, int8 leaves a "
          "quarter and adds in the next step what rounding left out")
          .between_ranks(),
      key("comm.power-sgd", &C::comm, &Section::power_sgd,
          "gradients of weights travel as products of matrices of this rank (PowerSGD): a "
          "hundredth "
          "of the bytes; what a product leaves out is added in the next step")
          .within(0, 8)
          .between_ranks(),
      key("comm.power-sgd-from-epoch", &C::comm, &Section::power_sgd_from_epoch,
          "gradients travel whole before this epoch, counted from 0; auto: before the warm-up has "
          "ended, optim.warmup-epochs")
          .or_auto()
          .at_least(0)
          .needs(
              "comm.power-sgd", [](const Config& config) { return config.comm.power_sgd > 0; },
              "gradients travel whole")
          .between_ranks(),
      key("comm.deadline-s", &C::comm, &Section::deadline_s,
          "how long a rank waits for the others before the job ends")
          .within(1, 1e6)
          .bookkeeping()
          .between_ranks(),
      key("comm.share-gpu", &C::comm, &Section::share_gpu,
          "several ranks may use one GPU: for tests, and for the parts of a MIG device")
          .needs("backend", may_use_gpus, "no rank uses a GPU")
          .bookkeeping()
          .other_name("share-gpu"),
      key("comm.allow-different-builds", &C::comm, &Section::allow_different_builds,
          "ranks may run different builds of this program; the bits may then differ")
          .bookkeeping()
          .other_name("allow-different-builds"),
  };
}

namespace {

bool is_rare(const Config& config) { return config.sync.every > 1; }
bool has_gossip(const Config& config) { return config.sync.gossip; }
bool has_outer(const Config& config) { return config.sync.outer_momentum > 0; }

}  // namespace

std::vector<ConfigKey> sync_keys() {
  using Section = C::Sync;
  return {
      key("sync.every", &C::sync, &Section::every,
          "groups of ranks agree on the weights every N steps; between that each trains alone")
          .within(1, 1e9)
          .between_ranks(),
      key("sync.group", &C::sync, &Section::group,
          "what trains alone between agreements: the ranks of a node together, or each rank")
          .needs("sync.every", is_rare, "all ranks agree in each step")
          .between_ranks(),
      key("sync.from-epoch", &C::sync, &Section::from_epoch,
          "all ranks agree in each step before this epoch, counted from 0")
          .at_least(0)
          .needs("sync.every", is_rare, "all ranks agree in each step")
          .between_ranks(),
      key("sync.outer-momentum", &C::sync, &Section::outer_momentum,
          "momentum of the agreed weights towards the groups' mean, which they become without it")
          .within(0, 0.999)
          .needs("sync.every", is_rare, "all ranks agree in each step")
          .between_ranks(),
      key("sync.outer-lr", &C::sync, &Section::outer_lr,
          "the share of the way towards the mean, with an outer momentum")
          .within(0.01, 2)
          .needs("sync.outer-momentum", has_outer, "the weights become the mean")
          .between_ranks(),
      key("sync.gossip", &C::sync, &Section::gossip,
          "each rank trains alone and gives half of its weights to another one in each step "
          "(stochastic gradient push): no rank waits for all others")
          .between_ranks(),
      key("sync.gossip-late", &C::sync, &Section::gossip_late,
          "these weights are added this many steps later, so that steps hide their way")
          .within(0, 8)
          .needs("sync.gossip", has_gossip, "no weights are sent")
          .between_ranks(),
  };
}

}  // namespace lockstep::config
