#include <array>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"

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

class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    require(object.is_object(), where_ + " is not a JSON object");
  }
  const Json& at(const char* key) const {
    require(
        object_.contains(key),
        fmt::format("{} has no key '{}': a profile in jobs/gpus shows all of them", where_, key));
    return object_[key];
  }
  double number(const char* key) const {
    const Json& value = at(key);
    require(value.is_number() && value.get<double>() >= 0,
            fmt::format("{}: '{}' is not a number", where_, key));
    return value.get<double>();
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    require(value.is_string(), fmt::format("{}: '{}' is not text", where_, key));
    return value.get<std::string>();
  }
  void three_numbers(const char* key) const {
    const Json& value = at(key);
    require(value.is_array() && value.size() == 3,
            fmt::format("{}: '{}' is not a list of three numbers", where_, key));
  }

 private:
  const Json& object_;
  std::string where_;
};

GpuRates rates_of(const Json& object, const std::string& origin) {
  const Reader read(object, origin + ", rates");
  GpuRates rates;
  rates.bandwidth = read.number("bandwidth");
  rates.fp32 = read.number("fp32");
  rates.tf32 = read.number("tf32");
  rates.bf16 = read.number("bf16");
  rates.fp16 = read.number("fp16");
  return rates;
}

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
  Json all = Json::parse(json, nullptr, false);
  require(!all.is_discarded(), origin + " is not JSON");
  const Reader read(all, origin);
  GpuProfile profile;
  profile.name = read.text("deviceName");
  for (const char* key : cudnn_numbers) read.number(key);
  for (const char* key : cudnn_sizes) read.three_numbers(key);
  profile.memory = read.number("totalGlobalMem");
  if (all.contains("source")) profile.source = read.text("source");
  if (all.contains("rates")) profile.rates = rates_of(all["rates"], origin);
  all.erase("source");
  all.erase("rates");
  profile.cudnn = all.dump();
  return profile;
}

GpuProfile read_gpu_profile(const std::filesystem::path& path) {
  return parse_gpu_profile(read_text(path), path.string());
}

}  // namespace lockstep::backend
