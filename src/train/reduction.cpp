#include "train/reduction.hpp"

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/two_level/two_level.hpp"
#include "lockstep/reduce/bucket_choice.hpp"

namespace lockstep::train {
namespace {

using config::AllReduceChoice;

constexpr float one_node_mb = 1, gpu_mb = 25;

/// The configuration of the checkpoint, if it was written by as many ranks.
std::optional<config::Config> begun_with(const ReductionSetting& setting) {
  const std::optional<ResumePoint>& resume = setting.resume;
  if (!resume || resume->header.world != static_cast<std::uint64_t>(setting.control.world()))
    return std::nullopt;
  return written_config(*resume);
}

AllReduceChoice decide(const ReductionSetting& setting) {
  if (!setting.on_host || !comm::has_two_levels(setting.nodes)) return AllReduceChoice::flat;
  const auto before = begun_with(setting);
  return before ? before->comm.all_reduce : AllReduceChoice::two_level;
}

}  // namespace

std::unique_ptr<comm::Communicator> choose_all_reduce(config::Config& config,
                                                      const ReductionSetting& setting) {
  AllReduceChoice& choice = config.comm.all_reduce;
  require(choice != AllReduceChoice::two_level || setting.on_host,
          "comm.all-reduce = two-level: on GPUs the library of the network decides; leave it out");
  const bool asked = choice == AllReduceChoice::two_level;
  if (choice == AllReduceChoice::automatic) choice = decide(setting);
  if (choice == AllReduceChoice::flat || setting.control.world() == 1) return nullptr;
  auto two_level = comm::two_level_or_flat(setting.flat, setting.control, setting.nodes,
                                           {.deadline_s = config.comm.deadline_s},
                                           asked ? "comm.all-reduce = two-level" : "");
  if (two_level)
    log::info(fmt::format("all-reduces over two levels: {} ranks on {} node(s)",
                          setting.nodes.world(), setting.nodes.count()));
  else
    choice = AllReduceChoice::flat;
  return two_level;
}

void choose_buckets(config::Config& config, const ReductionSetting& setting,
                    comm::Communicator& communicator, const nn::Network& network) {
  float& size_mb = config.comm.bucket_mb;
  if (size_mb > 0) return;
  if (const auto before = begun_with(setting)) size_mb = before->comm.bucket_mb;
  if (size_mb > 0) return;
  size_mb = setting.on_host ? one_node_mb : gpu_mb;
  if (!setting.on_host || setting.nodes.count() == 1) return;
  const std::size_t bytes = nn::numbers(network) * sizeof(float);
  const reduce::AllReduceCost cost = reduce::measure_all_reduce(communicator, setting.control);
  size_mb = reduce::best_bucket_mb(cost, bytes);
  log::info(
      fmt::format("buckets of {} MB: an all-reduce takes {:.2f} ms and 1 ms for each {:.2f} "
                  "MB",
                  size_mb, 1e3 * cost.latency_s, cost.bytes_per_s / 1e9));
}

}  // namespace lockstep::train
