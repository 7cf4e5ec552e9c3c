#include "lockstep/study/machine/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/config/toml.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/study/machine/nccl_table.hpp"

namespace lockstep::study {
namespace {

using config::TomlEntry;
using config::TomlKind;

/// Where the number of a key goes, in this unit.
struct Number {
  double* value;
  double unit = 1;
  bool above_0 = false;
};

SumBy sum_by(const std::string& name, const std::string& where) {
  if (name == "nccl") return SumBy::nccl;
  if (name == "ring") return SumBy::ring;
  require(name == "direct", fmt::format("{}: '{}' is not nccl, ring or direct", where, name));
  return SumBy::direct;
}

/// False where no key has this name.
bool take_text(const TomlEntry& entry, const std::string& where, MachineProfile& profile) {
  const auto text = [&] {
    require(entry.kind == TomlKind::text, where + " is not a text");
    return entry.value;
  };
  if (entry.key == "name")
    profile.name = text();
  else if (entry.key == "device.model")
    profile.device.model = text();
  else if (entry.key == "device.precision")
    profile.device.precision = parse_choice<backend::Precision>(text(), where);
  else if (entry.key == "network.sum-by")
    profile.network.by = sum_by(text(), where);
  else
    return false;
  return true;
}

constexpr std::size_t reference_rows = 64;

double row_floor_ms(const nn::Network& network, backend::Precision precision,
                    const backend::GpuRates& rates) {
  return backend::floor_ms(network, reference_rows, precision, rates) / reference_rows;
}

}  // namespace

MachineProfile parse_machine(std::string_view toml, const std::string& origin) {
  MachineProfile profile;
  profile.source = origin;
  DeviceProfile& device = profile.device;
  NetworkProfile& network = profile.network;
  double devices = 0, image = static_cast<double>(device.image), bucket_mb = -1;
  const std::map<std::string, Number> numbers = {
      {"devices-per-node", {&devices, 1, true}},
      {"bucket-mb", {&bucket_mb}},
      {"cross-gb-per-s", {&profile.cross_gb_per_s}},
      {"device.row-ms", {&device.pace.row_ms, 1, true}},
      {"device.step-ms", {&device.pace.step_ms}},
      {"device.image", {&image}},
      {"device.jitter", {&device.jitter}},
      {"device.memory-gb-per-s", {&device.rates.bandwidth, 1e9}},
      {"device.fp32-tflops", {&device.rates.fp32, 1e12}},
      {"device.tf32-tflops", {&device.rates.tf32, 1e12}},
      {"device.bf16-tflops", {&device.rates.bf16, 1e12}},
      {"device.fp16-tflops", {&device.rates.fp16, 1e12}},
      {"network.node-gb-per-s", {&network.node_gb_per_s, 1, true}},
      {"network.inside-gb-per-s", {&network.inside_gb_per_s, 1, true}},
      {"network.latency-us", {&network.latency_us}},
      {"network.inside-latency-us", {&network.inside_latency_us}},
      {"network.message-us", {&network.message_us}},
      {"network.value-bytes", {&network.value_bytes, 1, true}}};
  std::set<std::string> seen;
  for (const TomlEntry& entry : config::read_toml(toml, origin)) {
    const std::string where = fmt::format("{}, line {}: {}", origin, entry.line, entry.key);
    seen.insert(entry.key);
    if (take_text(entry, where, profile)) continue;
    const auto found = numbers.find(entry.key);
    require(found != numbers.end(), where + " is not a key of a machine");
    const double value = real_number(entry.value).value_or(-1);
    require(entry.kind == TomlKind::number && value >= 0, where + " is not a number of 0 or more");
    *found->second.value = found->second.unit * value;
  }
  for (const char* key : {"name", "devices-per-node", "device.row-ms", "device.step-ms",
                          "network.sum-by", "network.node-gb-per-s", "network.inside-gb-per-s"})
    require(seen.contains(key), fmt::format("{}: lacks '{}'", origin, key));
  for (const auto& [key, number] : numbers)
    require(!number.above_0 || *number.value > 0,
            fmt::format("{}: '{}' must be above 0", origin, key));
  profile.devices_per_node = static_cast<std::size_t>(devices);
  device.image = static_cast<std::size_t>(image);
  if (bucket_mb >= 0) profile.bucket_mb = bucket_mb;
  return profile;
}

MachineProfile ideal_machine() {
  constexpr double no_limit = std::numeric_limits<double>::infinity();
  MachineProfile profile;
  profile.devices_per_node = std::size_t{1} << 20;
  profile.device.pace.row_ms = 1;
  profile.device.precision = backend::Precision::fp32;
  profile.device.rates = {.bandwidth = no_limit, .fp32 = 1, .tf32 = 1, .bf16 = 1, .fp16 = 1};
  profile.network.node_gb_per_s = profile.network.inside_gb_per_s = no_limit;
  return profile;
}

backend::LinePace pace_for(const DeviceProfile& device, const nn::Network& network,
                           backend::Precision precision) {
  const nn::Network reference =
      nn::resnet(nn::usual_resnet(device.model, device.image, network.classes));
  const bool same = reference.name == network.name && reference.input == network.input &&
                    precision == device.precision;
  if (same) return device.pace;
  require(device.rates.bandwidth > 0 && device.rates.of(precision) > 0 &&
              device.rates.of(device.precision) > 0,
          fmt::format("the machine is described for {} in {}: another network or precision needs "
                      "its rates, device.memory-gb-per-s and device.{}-tflops",
                      device.model, to_string(device.precision), to_string(precision)));
  return {device.pace.row_ms * row_floor_ms(network, precision, device.rates) /
              row_floor_ms(reference, device.precision, device.rates),
          device.pace.step_ms * static_cast<double>(network.nodes.size()) /
              static_cast<double>(reference.nodes.size())};
}

namespace {

// NCCL's model of an all-reduce (src/graph/tuning.cc of NCCL 2.28): a base latency, one for each
// step inside of a node and between nodes, and a bandwidth. Microseconds, for LL, LL128, Simple.
constexpr std::array<const char*, 3> protocols = {"LL", "LL128", "Simple"};
constexpr std::array<double, 3> tree_base = {6.8, 14.0, 8.4}, ring_base = {6.6, 14.0, 8.4},
                                tree_nvlink = {0.6, 1.25, 4.0}, ring_nvlink = {0.6, 1.9, 3.4},
                                tree_net = {5.0, 8.5, 14.0}, ring_net = {2.7, 4.0, 14.0};
constexpr double ring_plateau = 1.4;  // Simple between nodes, for large data
constexpr double host_overhead_us = 1;

/// The share of the bus that a protocol reaches.
double ring_share(std::size_t protocol) { return std::array{0.25, 0.92, 1.0}[protocol]; }
double tree_bus_share(std::size_t protocol) {
  return 0.92 * std::array{1 / 3.8, 0.915, 1.0}[protocol];
}

struct Case {
  double ranks, nodes, per_node;
  double hops = 2;  // of a ring: 1 for an all-gather
};

Case case_of(const Layout& layout) {
  return {.ranks = static_cast<double>(layout.ranks),
          .nodes = static_cast<double>(layout.nodes()),
          .per_node = static_cast<double>(std::min(layout.ranks, layout.per_node))};
}

double bus_gb_per_s(const NetworkProfile& network, const Case& at) {
  return at.nodes > 1 ? std::min(network.inside_gb_per_s, network.node_gb_per_s)
                      : network.inside_gb_per_s;
}

NcclChoice ring(const NetworkProfile& network, const Case& at, std::size_t protocol, double bytes) {
  const double steps = at.hops * (at.ranks - 1), between = at.hops * (at.nodes - 1);
  const double overhead = protocol == 2 ? 3 * host_overhead_us : host_overhead_us;
  double latency = ring_base[protocol] +
                   (steps - between) * std::max(ring_nvlink[protocol], overhead) +
                   between * ring_net[protocol];
  const bool plateau =
      at.hops == 2 && at.nodes > 1 && protocol == 2 && bytes >= at.ranks / 16 * 65536;
  if (plateau) latency *= ring_plateau;
  return {at.hops == 2 ? "AllReduce" : "AllGather", "Ring", protocols[protocol], latency,
          bus_gb_per_s(network, at) * ring_share(protocol) * at.ranks / steps};
}

NcclChoice tree(const NetworkProfile& network, const Case& at, std::size_t protocol) {
  const double latency = tree_base[protocol] + 2 * ((at.per_node - 1) * tree_nvlink[protocol] +
                                                    std::log2(at.nodes) * tree_net[protocol]);
  return {"AllReduce", "Tree", protocols[protocol], latency,
          bus_gb_per_s(network, at) * tree_bus_share(protocol) / 2};
}

double nccl_s(const NetworkProfile& network, const Case& at, double bytes) {
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t p = 0; p < protocols.size(); ++p) {
    best = std::min(best, seconds_of(ring(network, at, p, bytes), bytes));
    if (at.hops == 2) best = std::min(best, seconds_of(tree(network, at, p), bytes));
  }
  return best;
}

double ring_s(const NetworkProfile& network, const Case& at, double bytes) {
  const double steps = at.hops * (at.ranks - 1), between = at.hops * (at.nodes - 1);
  return ((steps - between) * network.inside_latency_us + between * network.latency_us) * 1e-6 +
         steps / at.ranks * bytes / (bus_gb_per_s(network, at) * 1e9);
}

/// Each rank sends a part to each other one and gets their sums: two delays, whatever the number of
/// ranks. Over two levels only a node's owners of equal parts talk to other nodes.
ReduceCost direct(const NetworkProfile& network, const Case& at, double bytes) {
  const double inside =
      2 * (at.per_node - 1) / at.per_node * bytes / (network.inside_gb_per_s * 1e9);
  if (at.nodes <= 1)
    return {inside + 2 * (at.ranks - 1) * network.message_us * 1e-6,
            2 * network.inside_latency_us * 1e-6};
  const double across = 2 * (at.nodes - 1) / at.nodes * bytes / (network.node_gb_per_s * 1e9);
  const double messages = 2 * (at.nodes - 1) * network.message_us * 1e-6;
  return {across + messages, 2 * network.latency_us * 1e-6 + inside};
}

/// Each rank sends each other one its part of `bytes` bytes: no sum inside of a node makes what
/// leaves it less. Seconds.
double trade_s(const NetworkProfile& network, const Case& at, double bytes) {
  const double part = bytes / at.ranks, away = at.ranks - at.per_node;
  return std::max((at.per_node - 1) * part / (network.inside_gb_per_s * 1e9),
                  at.per_node * away * part / (network.node_gb_per_s * 1e9));
}

double message_latency_s(const NetworkProfile& network, bool alone) {
  if (network.by == SumBy::nccl)
    return 1e-6 * (ring_base.back() + (alone ? ring_nvlink.back() : ring_net.back()));
  return 1e-6 * (alone ? network.inside_latency_us : network.latency_us);
}

/// Bytes in int8 of that many in float.
struct Int8Bytes {
  explicit Int8Bytes(double floats)
      : values(floats / 4),
        scales(floats / static_cast<double>(backend::arithmetic::scale_block)) {}
  double all() const { return values + scales; }
  double values, scales;
};

}  // namespace

ReduceCost all_reduce_cost(const NetworkProfile& network, const Layout& layout, double bytes) {
  if (layout.ranks <= 1) return {};
  const Case at = case_of(layout);
  const double sent = bytes * network.value_bytes / 4;
  switch (network.by) {
    case SumBy::nccl:
      return {nccl_s(network, at, sent), 0};
    case SumBy::ring:
      return {ring_s(network, at, sent), 0};
    case SumBy::direct:
      return direct(network, at, sent);
  }
  throw Error("a way to sum without a formula");
}

ReduceCost int8_cost(const NetworkProfile& network, const Layout& layout, double bytes) {
  if (layout.ranks <= 1) return {};
  Case at = case_of(layout);
  const Int8Bytes sent(bytes);
  const double traded_s = trade_s(network, at, sent.all());
  const double latency_s = message_latency_s(network, at.nodes <= 1);
  if (network.by == SumBy::direct)  // which gathers as it trades
    return {2 * traded_s + 4 * (at.ranks - 1) * network.message_us * 1e-6, 2 * latency_s};
  at.hops = 1;
  const auto gathered_s = network.by == SumBy::nccl ? nccl_s : ring_s;
  return {latency_s + traded_s + gathered_s(network, at, sent.values) +
              gathered_s(network, at, sent.scales),
          0};
}

ReduceCost shift_cost(const NetworkProfile& network, const Layout& layout, std::size_t distance,
                      double bytes) {
  if (layout.ranks <= 1) return {};
  const std::size_t on_node = std::min(layout.ranks, layout.per_node);
  const bool alone = layout.nodes() <= 1;
  const double inside_s = bytes / (network.inside_gb_per_s * 1e9);
  const double leaving = alone ? 0 : static_cast<double>(std::min(distance, on_node));
  const double stay_s = alone || distance < on_node ? inside_s : 0;
  return {
      std::max(stay_s, leaving * bytes / (network.node_gb_per_s * 1e9)) + 1e-6 * network.message_us,
      message_latency_s(network, alone)};
}

ReduceCost push_cost(const NetworkProfile& network, const Layout& layout, double bytes) {
  ReduceCost mean;
  double distances = 0;
  for (std::size_t distance = 1; distance < layout.ranks; distance *= 2, ++distances) {
    const ReduceCost one = shift_cost(network, layout, distance, bytes);
    mean = {mean.busy_s + one.busy_s, one.delay_s};
  }
  if (distances > 0) mean.busy_s /= distances;
  return mean;
}

double gather_s(const NetworkProfile& network, const Layout& layout, std::size_t group,
                double bytes) {
  check(network.by == SumBy::direct, "only ranks on CPUs gather by messages to each other one");
  const std::size_t on_node = std::min({layout.ranks, layout.per_node, group});
  const auto here = static_cast<double>(on_node - 1), away = static_cast<double>(group - on_node);
  const auto sharing = static_cast<double>(std::min(layout.ranks, layout.per_node));
  const double latency_us = away > 0 ? network.latency_us : network.inside_latency_us;
  return 1e-6 * (latency_us + (here + away) * network.message_us) +
         std::max(here * bytes / (network.inside_gb_per_s * 1e9),
                  sharing * away * bytes / (network.node_gb_per_s * 1e9));
}

ReduceCost all_reduce_cost(const CommFigures& measured, double bytes) {
  const auto alone = measured.verbs.find("all-reduce");
  const auto queued = measured.verbs.find("all-reduce, queued");
  check(alone != measured.verbs.end(), "the figures have no all-reduce");
  const double seconds = seconds_of(alone->second, bytes);
  if (queued == measured.verbs.end()) return {seconds, 0};
  const double busy = std::min(seconds, seconds_of(queued->second, bytes));
  return {busy, seconds - busy};
}

/// A trade's messages are those of a gather by ranks on CPUs; NCCL gathers by rings, over which
/// each byte leaves a node once.
ReduceCost int8_cost(const CommFigures& measured, double bytes) {
  const auto gather = measured.verbs.find("all-gather");
  check(gather != measured.verbs.end(), "the figures have no all-gather");
  if (measured.ranks <= 1) return {};
  const auto gathered_s = [&](double part) { return seconds_of(gather->second, part); };
  const double ranks = measured.ranks, per_node = ranks / measured.nodes;
  const double more =
      measured.transport == "NCCL" ? std::max(1.0, per_node * (ranks - per_node) / (ranks - 1)) : 1;
  const Int8Bytes sent(bytes);
  return {gathered_s(more * sent.all()) + gathered_s(sent.values) + gathered_s(sent.scales), 0};
}

}  // namespace lockstep::study
