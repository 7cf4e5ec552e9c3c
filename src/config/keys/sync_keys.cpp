#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {
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
          .needs("sync.every", is_rare, "all ranks agree in each step")
          .between_ranks(),
      key("sync.outer-momentum", &C::sync, &Section::outer_momentum,
          "momentum of the agreed weights towards the groups' mean; 0: they become the mean")
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
          "these weights are added this many steps later, so that steps hide their way; 0: at once")
          .within(0, 8)
          .needs("sync.gossip", has_gossip, "no weights are sent")
          .between_ranks(),
  };
}

}  // namespace lockstep::config
