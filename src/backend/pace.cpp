#include "lockstep/backend/pace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/json_fields.hpp"

namespace lockstep::backend {
namespace {

using Json = nlohmann::json;

/// What `bench train --layers --json` wrote.
struct MeasuredTape : MeasuredPace {
  std::size_t batch = 0, ranks = 0;
  std::size_t tape_rows = 0;  ///< of the micro-batch that was measured; 0: a rank's batch

  static void fields(auto& self, auto&& visit) {
    visit("model", self.model);
    visit("batch", self.batch);
    visit("ranks", self.ranks);
    visit("forward_steps", self.forward_steps);
    visit("update_ms", self.update_ms);
    visit("tape", self.tape);
    visit.later("tape_rows", self.tape_rows);
  }
};

MeasuredPace parse_tape(const Json& json, const std::string& origin) {
  auto pace = read_fields<MeasuredTape>(
      json, origin, "measure it with this lockstep: bench train --layers --json");
  require(pace.ranks > 0 && pace.batch >= pace.ranks,
          origin + ": 'batch' has less than a row for each rank");
  require(pace.forward_steps > 0 && pace.update_ms >= 0 &&
              std::ranges::all_of(pace.tape, [](const auto& step) { return step.ms >= 0; }),
          origin + ": 'forward_steps', 'update_ms' or an 'ms' of the tape is not a count or time");
  pace.origin = origin;
  pace.rows = pace.tape_rows > 0 ? pace.tape_rows : pace.batch / pace.ranks;
  return pace;
}

}  // namespace

std::string describe(const Pace& pace) {
  struct Words {
    std::string operator()(const LinePace& line) const {
      return fmt::format("{} ms a row and {} ms a step", line.row_ms, line.step_ms);
    }
    std::string operator()(const GpuPace& gpu) const {
      return fmt::format("{} at {} of its rates", gpu.name, gpu.efficiency);
    }
    std::string operator()(const MeasuredPace& tape) const {
      return fmt::format("the tape in {}", tape.origin);
    }
  };
  return std::visit(Words(), pace);
}

Pace read_pace(const std::filesystem::path& path, double efficiency) {
  const std::string origin = path.string(), content = read_text(path);
  const Json json = Json::parse(content, nullptr, false);
  require(json.is_object(), origin +
                                " is not a JSON object: give a tape that bench train --layers "
                                "--json wrote, or a GPU's profile");
  if (!json.contains("deviceName")) return parse_tape(json, origin);
  const GpuProfile gpu = parse_gpu_profile(content, origin);
  require(gpu.rates && gpu.rates->bandwidth > 0 && gpu.rates->fp32 > 0 && gpu.rates->tf32 > 0 &&
              gpu.rates->bf16 > 0 && gpu.rates->fp16 > 0,
          origin + " lacks a rate under 'rates': bandwidth, fp32, tf32, bf16 and fp16");
  return GpuPace{.name = gpu.name, .rates = *gpu.rates, .efficiency = efficiency};
}

namespace {

using Json = nlohmann::json;

// What cuDNN 9.19 reads about a device: whole numbers, except for the name.
constexpr std::array cudnn_numbers = {"cudaDeviceId",
                                      "deviceVer",
                                      "multiProcessorCount",
                                      "driverVer",
                                      "maxSharedMemoryPerBlockOptin",
                                      "totalGlobalMem",
                                      "regsPerBlock",
                                      "smClockRateKHz",
                                      "memClockRateKHz",
                                      "l2CacheSize",
                                      "warpSize",
                                      "maxSharedMemoryPerBlock",
                                      "reservedSharedMemoryPerBlock",
                                      "maxRegistersPerSM",
                                      "pciDeviceId",
                                      "maxCtasPerSM",
                                      "maxThreadsPerBlock",
                                      "maxThreadsPerSM",
                                      "isTccDriver",
                                      "supportCoopLaunch"};
constexpr std::array cudnn_sizes = {"maxGridSize", "maxBlockSize"};

}  // namespace

double GpuRates::of(Precision precision) const {
  switch (precision) {
    case Precision::fp32:
      return fp32;
    case Precision::tf32:
      return tf32;
    case Precision::bf16:
      return bf16;
    case Precision::fp16:
      return fp16;
  }
  throw Error("a precision without a rate");
}

GpuProfile parse_gpu_profile(const std::string& json, const std::string& origin) {
  Json all = parse_json<Json>(json, origin);
  auto profile = read_fields<GpuProfile>(all, origin, "a profile in jobs/gpus shows all keys");
  const auto number = [](const Json& value) {
    return value.is_number() && value.get<double>() >= 0;
  };
  for (const char* key : cudnn_numbers)
    require(number(all.value(key, Json())),
            fmt::format("{}: '{}' is missing or not a number", origin, key));
  for (const char* key : cudnn_sizes)
    require(all.value(key, Json()).is_array() && all[key].size() == 3,
            fmt::format("{}: '{}' is not a list of three numbers", origin, key));
  if (profile.rates)
    require(std::ranges::all_of(all["rates"], number),
            origin + ": a rate is not a number of 0 or more");
  all.erase("source");
  all.erase("rates");
  profile.cudnn = all.dump();
  return profile;
}

GpuProfile read_gpu_profile(const std::filesystem::path& path) {
  return parse_gpu_profile(read_text(path), path.string());
}

}  // namespace lockstep::backend
