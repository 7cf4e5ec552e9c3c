#include <algorithm>
#include <array>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/json_fields.hpp"

namespace lockstep::backend {

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
