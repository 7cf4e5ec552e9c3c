#include "lockstep/study/machine/machine.hpp"

#include <functional>
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
using Setter = std::function<void(const TomlEntry&)>;

/// The value of one key; `where` names the file, the line and the key.
double number(const TomlEntry& entry, const std::string& where) {
  const double value = real_number(entry.value).value_or(-1);
  require(entry.kind == TomlKind::number && value >= 0, where + " is not a number of 0 or more");
  return value;
}

std::string text(const TomlEntry& entry, const std::string& where) {
  require(entry.kind == TomlKind::text, where + " is not a text");
  return entry.value;
}

SumBy sum_by(const std::string& name, const std::string& where) {
  if (name == "nccl") return SumBy::nccl;
  if (name == "ring") return SumBy::ring;
  require(name == "direct", fmt::format("{}: '{}' is not nccl, ring or direct", where, name));
  return SumBy::direct;
}

class Reader {
 public:
  Reader(MachineProfile& profile, const std::string& origin) : profile_(profile), origin_(origin) {
    DeviceProfile& device = profile.device;
    NetworkProfile& network = profile.network;
    texts("name", [&](const std::string& value, const std::string&) { profile_.name = value; });
    numbers("devices-per-node",
            [&](double value) { profile_.devices_per_node = static_cast<std::size_t>(value); });
    numbers("bucket-mb", [&](double value) { profile_.bucket_mb = value; });
    numbers("cross-gb-per-s", [&](double value) { profile_.cross_gb_per_s = value; });
    numbers("device.row-ms", [&](double value) { device.pace.row_ms = value; });
    numbers("device.step-ms", [&](double value) { device.pace.step_ms = value; });
    numbers("device.image", [&](double value) { device.image = static_cast<std::size_t>(value); });
    numbers("device.jitter", [&](double value) { device.jitter = value; });
    numbers("device.memory-gb-per-s", [&](double value) { device.rates.bandwidth = 1e9 * value; });
    for (const auto& [key, rate] : {std::pair{"fp32", &device.rates.fp32},
                                    {"tf32", &device.rates.tf32},
                                    {"bf16", &device.rates.bf16},
                                    {"fp16", &device.rates.fp16}})
      numbers(fmt::format("device.{}-tflops", key), [rate](double value) { *rate = 1e12 * value; });
    texts("device.model",
          [&](const std::string& value, const std::string&) { device.model = value; });
    texts("device.precision", [&](const std::string& value, const std::string& where) {
      device.precision = parse_choice<backend::Precision>(value, where);
    });
    texts("network.sum-by", [&](const std::string& value, const std::string& where) {
      network.by = sum_by(value, where);
    });
    for (const auto& [key, field] : {std::pair{"node-gb-per-s", &network.node_gb_per_s},
                                     {"inside-gb-per-s", &network.inside_gb_per_s},
                                     {"latency-us", &network.latency_us},
                                     {"inside-latency-us", &network.inside_latency_us},
                                     {"message-us", &network.message_us},
                                     {"value-bytes", &network.value_bytes}})
      numbers(fmt::format("network.{}", key), [field](double value) { *field = value; });
  }

  void read(std::string_view toml) {
    std::set<std::string> seen;
    for (const TomlEntry& entry : config::read_toml(toml, origin_)) {
      const std::string where = fmt::format("{}, line {}: {}", origin_, entry.line, entry.key);
      const auto found = setters_.find(entry.key);
      require(found != setters_.end(), where + " is not a key of a machine");
      found->second(entry);
      seen.insert(entry.key);
    }
    for (const char* key : {"name", "devices-per-node", "device.row-ms", "device.step-ms",
                            "network.sum-by", "network.node-gb-per-s", "network.inside-gb-per-s"})
      require(seen.contains(key), fmt::format("{}: lacks '{}'", origin_, key));
    for (const auto& [key, rate] :
         {std::pair{"devices-per-node", static_cast<double>(profile_.devices_per_node)},
          {"device.row-ms", profile_.device.pace.row_ms},
          {"network.node-gb-per-s", profile_.network.node_gb_per_s},
          {"network.inside-gb-per-s", profile_.network.inside_gb_per_s},
          {"network.value-bytes", profile_.network.value_bytes}})
      require(rate > 0, fmt::format("{}: '{}' must be above 0", origin_, key));
  }

 private:
  void numbers(const std::string& key, std::function<void(double)> set) {
    setters_[key] = [this, key, set](const TomlEntry& entry) {
      set(number(entry, fmt::format("{}, line {}: {}", origin_, entry.line, key)));
    };
  }
  void texts(const std::string& key,
             std::function<void(const std::string&, const std::string&)> set) {
    setters_[key] = [this, key, set](const TomlEntry& entry) {
      const std::string where = fmt::format("{}, line {}: {}", origin_, entry.line, key);
      set(text(entry, where), where);
    };
  }

  MachineProfile& profile_;
  std::string origin_;
  std::map<std::string, Setter> setters_;
};

constexpr std::size_t reference_rows = 64;

double row_floor_ms(const nn::Network& network, backend::Precision precision,
                    const backend::GpuRates& rates) {
  return backend::floor_ms(network, reference_rows, precision, rates) / reference_rows;
}

}  // namespace

MachineProfile parse_machine(std::string_view toml, const std::string& origin) {
  MachineProfile profile;
  profile.source = origin;
  Reader(profile, origin).read(toml);
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
