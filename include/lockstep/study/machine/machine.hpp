#pragma once

// A cluster as numbers: how fast its devices are, and what sums over its network cost.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/backend/pace.hpp"
#include "lockstep/backend/precision.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/study/machine/comm_figures.hpp"

namespace lockstep::study {

/// What ranks and where: `per_node` on each node but perhaps the last.
struct Layout {
  std::size_t ranks = 1, per_node = 1;
  std::size_t nodes() const { return (ranks + per_node - 1) / per_node; }
};

/// What one all-reduce or message costs: for busy_s no other one moves, and delay_s later it has
/// arrived.
struct ReduceCost {
  double busy_s = 0, delay_s = 0;
};

/// How a cluster sums.
enum class SumBy {
  nccl,   ///< the fastest of rings and trees, by NCCL's own model of them
  ring,   ///< one ring over all devices, with a latency for each of its steps
  direct  ///< lockstep on CPUs: each rank owns a part; over two levels where nodes have several
};

struct NetworkProfile {
  SumBy by = SumBy::direct;
  double node_gb_per_s = 0;    ///< that all ranks of one node send together, 10^9 bytes
  double inside_gb_per_s = 0;  ///< between a node's ranks: the bus bandwidth of an all-reduce there
  double latency_us = 0;       ///< from one node to another; nccl has its own
  double inside_latency_us = 0;  ///< ring: of a step inside of a node
  double message_us = 0;         ///< direct: of a processor, for each message
  double value_bytes = 4;        ///< of a gradient on the network
};

struct DeviceProfile {
  backend::LinePace pace;  ///< for the reference below
  std::string model = "resnet50";
  std::size_t image = 224;
  backend::Precision precision = backend::Precision::fp16;
  backend::GpuRates rates;  ///< what other models and precisions are scaled by
  /// Deviation of a device's step time, as a share of it: the slowest of P is later.
  double jitter = 0;
};

struct MachineProfile {
  std::string name, source;  ///< the file
  std::size_t devices_per_node = 1;
  DeviceProfile device;
  NetworkProfile network;
  std::optional<double> bucket_mb;  ///< 10^6 bytes; of the published runs, if they say it
  double cross_gb_per_s = 0;        ///< between two sockets of a node; 0: not known
};

/// Reads jobs/machines/*.toml. Throws InputError naming the file, the line and the key for what is
/// unknown, missing or no such number.
MachineProfile parse_machine(std::string_view toml, const std::string& origin);

/// Ranks on CPUs that compute alike, by operations alone (1 ms a row of ResNet-50), and whose
/// messages take no time: where nothing is known of a machine.
MachineProfile ideal_machine();

/// An all-reduce of `bytes` bytes of gradients in float, by this network. Pure.
ReduceCost all_reduce_cost(const NetworkProfile& network, const Layout& layout, double bytes);
/// The same by what `bench comm` measured with as many ranks.
ReduceCost all_reduce_cost(const CommFigures& measured, double bytes);

/// A sum of `bytes` bytes of gradients in float as reduce::ExchangeKind::int8 makes it, over one
/// level: each rank sends each other one its part, then all gather the sums, both with their scales
/// apart. So a node sends what each of its ranks sends. Pure.
ReduceCost int8_cost(const NetworkProfile& network, const Layout& layout, double bytes);
/// The same by `bench comm`'s all-gather, which the figures must have.
ReduceCost int8_cost(const CommFigures& measured, double bytes);

/// Each rank sends `bytes` bytes to the one that many places after it. Between nodes, a node's
/// ranks share its rate. Pure.
ReduceCost shift_cost(const NetworkProfile& network, const Layout& layout, std::size_t distance,
                      double bytes);

/// The same to the rank 1, 2, 4, ... places after it (reduce::ExchangeKind::gossip): the mean of
/// these distances. Pure.
ReduceCost push_cost(const NetworkProfile& network, const Layout& layout, double bytes);

/// Each rank sends `bytes` bytes to each other one of its group, of `group` consecutive ranks that
/// fill nodes or divide them; all groups at once, by SumBy::direct. Seconds until they have come.
/// Pure.
double gather_s(const NetworkProfile& network, const Layout& layout, std::size_t group,
                double bytes);

/// The pace of this device for another network or precision than its reference: row_ms in the ratio
/// of what nn::cost_of() says at the device's rates, step_ms in that of the number of nodes. Pure.
backend::LinePace pace_for(const DeviceProfile& device, const nn::Network& network,
                           backend::Precision precision);

}  // namespace lockstep::study
