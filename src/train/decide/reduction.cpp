#include "train/decide/decide.hpp"

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/two_level/two_level.hpp"
#include "lockstep/reduce/bucket_choice.hpp"

namespace lockstep::train {
namespace {

using config::AllReduceChoice;

constexpr float one_node_mb = 1, gpu_mb = 25;

/// The configuration of the checkpoint, if it was written by as many replicas.
std::optional<config::Config> begun_with(const ReductionSetting& setting) {
  const std::optional<ResumePoint>& resume = setting.resume;
  if (!resume || resume->header.replicas != static_cast<std::uint64_t>(setting.flat.world()))
    return std::nullopt;
  return written_config(*resume);
}

AllReduceChoice best_choice(const ReductionSetting& setting) {
  if (!setting.on_host || !comm::has_two_levels(setting.nodes)) return AllReduceChoice::flat;
  const auto before = begun_with(setting);
  return before ? before->comm.all_reduce : AllReduceChoice::two_level;
}

}  // namespace

AllReduce choose_all_reduce(const config::Config::Comm& asked, const ReductionSetting& setting) {
  const bool insists = asked.all_reduce == AllReduceChoice::two_level;
  require(!insists || setting.on_host,
          "comm.all-reduce = two-level: on GPUs the library of the network decides; leave it out");
  const bool open = asked.all_reduce == AllReduceChoice::automatic;
  AllReduce decided{open ? best_choice(setting) : asked.all_reduce, nullptr};
  if (decided.choice == AllReduceChoice::flat || setting.flat.world() == 1) return decided;
  decided.two_level = comm::two_level_or_flat(setting.flat, setting.control, setting.nodes,
                                              {.deadline_s = asked.deadline_s},
                                              insists ? "comm.all-reduce = two-level" : "");
  if (decided.two_level)
    log::info(fmt::format("all-reduces over two levels: {} ranks on {}", setting.nodes.world(),
                          counted(setting.nodes.count(), "node")));
  else
    decided.choice = AllReduceChoice::flat;
  return decided;
}

float choose_bucket_mb(const config::Config::Comm& asked, const ReductionSetting& setting,
                       comm::Communicator& communicator, const nn::Network& network) {
  if (asked.bucket_mb > 0) return asked.bucket_mb;
  if (const auto before = begun_with(setting); before && before->comm.bucket_mb > 0)
    return before->comm.bucket_mb;
  if (!setting.on_host) return gpu_mb;
  if (setting.nodes.count() == 1) return one_node_mb;
  const std::size_t bytes = nn::numbers(network) * sizeof(float);
  const reduce::LinkCost cost = reduce::measure_all_reduce(communicator, setting.control);
  const float best_mb = reduce::best_bucket_mb(cost, bytes);
  log::info(
      fmt::format("buckets of {} MB: an all-reduce takes {:.2f} ms and 1 ms for each {:.2f} "
                  "MB",
                  best_mb, 1e3 * cost.latency_s, cost.bytes_per_s / 1e9));
  return best_mb;
}

}  // namespace lockstep::train
