#include "lockstep/study/machine/machine.hpp"

#include <map>
#include <set>

#include <fmt/core.h>

#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/config/toml.hpp"
#include "lockstep/nn/resnet.hpp"

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

}  // namespace lockstep::study
