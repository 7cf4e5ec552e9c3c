#include "train/decide/decide.hpp"

#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/train/decide/micro_batches.hpp"

namespace lockstep::train {
namespace {

/// Some ranks whose statistics are one have a single row in some micro-batch of such a step.
bool leaves_one_row(std::uint64_t global_rows, const StepRows& rows, std::size_t norm_ranks) {
  std::vector<std::size_t> together;
  for (int replica = 0; replica < rows.replicas; ++replica) {
    const auto parts = plan_micro_batches(global_rows, rows.replicas, replica, rows.most);
    together.resize(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) together[i] += parts[i].rows;
    if ((static_cast<std::size_t>(replica) + 1) % norm_ranks != 0) continue;
    if (std::ranges::count(together, std::size_t{1}) > 0) return true;
    together.assign(parts.size(), 0);
  }
  return false;
}

/// What gives each micro-batch two rows.
std::string remedy_of(const StepRows& rows, const config::Config& config) {
  const auto replicas = static_cast<std::uint64_t>(rows.replicas);
  const std::uint64_t parts = rows.full / (2 * replicas);
  if (parts > 0) return fmt::format("use --accumulate {}", parts);
  const std::string larger =
      fmt::format("use --batch {} or more", 2 * replicas * config.accumulate);
  return replicas == 1 ? larger : larger + ", fewer ranks, or on CPUs --model-options.norm-ranks";
}

}  // namespace

std::string why_not_one_row(const nn::Network& network) {
  const auto found = std::ranges::find_if(network.nodes, [](const nn::Node& node) {
    return node.op == nn::Op::batch_norm && node.shape.height * node.shape.width == 1;
  });
  if (found == network.nodes.end()) return "";
  return fmt::format(
      "batch norm {}, whose images have 1 x 1 pixels, has one value a channel and no deviation: it "
      "cannot be trained so",
      found->name);
}

void require_norm_values(const nn::Network& trained, const StepRows& rows,
                         const config::Config& config) {
  const std::string why = why_not_one_row(trained);
  if (why.empty()) return;
  const std::size_t norm_ranks = config.model_options.norm_ranks;
  const std::string shared = counted(static_cast<std::size_t>(rows.replicas), "rank");
  require(!leaves_one_row(rows.full, rows, norm_ranks),
          fmt::format("batch = {} and accumulate = {} on {} give micro-batches of 1 row, of which "
                      "{}; {}, or larger images",
                      rows.full, config.accumulate, shared, why, remedy_of(rows, config)));
  require(!leaves_one_row(rows.last, rows, norm_ranks),
          fmt::format("data.keep-last = true and batch = {} on {} leave an epoch's last batch {}, "
                      "with a micro-batch of 1 row, of which {}; leave out data.keep-last, or use "
                      "another batch",
                      rows.full, shared, counted(rows.last, "row"), why));
}

}  // namespace lockstep::train
