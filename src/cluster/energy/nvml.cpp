#include <dlfcn.h>

#include <cstdint>
#include <utility>

#include <fmt/core.h>

#include "cluster/energy/energy_source.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"

// NVML's counter of a GPU's energy: millijoules since the driver was loaded, on Volta and newer
// (docs.nvidia.com/deploy/nvml-api). The library belongs to the driver, so it is looked for where
// the program runs; its calls are declared here, and no header is needed to build.
namespace lockstep::cluster {
namespace {

using NvmlDevice = void*;
using Library = Owned<void*, ::dlclose>;

/// Throws InputError naming the call.
template <class Function>
Function* nvml_call(const Library& library, const char* name) {
  void* found = ::dlsym(library.get(), name);
  require(found != nullptr, fmt::format("NVML has no {}", name));
  return reinterpret_cast<Function*>(found);
}

class Nvml final : public EnergySource {
 public:
  /// Throws InputError where a GPU's energy cannot be read.
  Nvml(Library library, const std::vector<std::string>& pci_bus_ids, double now)
      : library_(std::move(library)), since_(now) {
    error_text_ = nvml_call<const char*(int)>(library_, "nvmlErrorString");
    energy_ = nvml_call<int(NvmlDevice, unsigned long long*)>(
        library_, "nvmlDeviceGetTotalEnergyConsumption");
    const auto find =
        nvml_call<int(const char*, NvmlDevice*)>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
    require_done(nvml_call<int()>(library_, "nvmlInit_v2")(), "its start");
    for (const std::string& id : pci_bus_ids) {
      Device device{.name = "GPU " + id};
      require_done(find(id.c_str(), &device.handle), device.name);
      device.before = read(device);
      devices_.push_back(std::move(device));
    }
  }
  ~Nvml() override { nvml_call<int()>(library_, "nvmlShutdown")(); }
  std::string name() const override { return "NVML"; }
  std::string counts() const override { return "the ranks' GPUs"; }

  Consumed advance(double now) override {
    const double seconds = now - std::exchange(since_, now);
    const bool knew = std::exchange(known_, false);
    bool back = false;
    std::uint64_t sum = 0;
    try {
      for (Device& device : devices_) {
        const std::uint64_t value = read(device);
        back = back || value < device.before;
        sum += value - std::exchange(device.before, value);
      }
    } catch (const Error& error) {
      return {0, 0, error.what()};
    }
    known_ = true;
    if (!knew || back) return {0, 0, "a GPU's counter began again, or could not be read before"};
    return {1e-3 * static_cast<double>(sum), seconds, ""};
  }

 private:
  struct Device {
    std::string name;
    NvmlDevice handle = nullptr;
    std::uint64_t before = 0;  ///< mJ
  };
  void require_done(int code, const std::string& what) const {
    require(code == 0, fmt::format("NVML: {}: {}", what, error_text_(code)));
  }
  std::uint64_t read(const Device& device) const {
    unsigned long long millijoules = 0;
    require_done(energy_(device.handle, &millijoules), device.name);
    return millijoules;
  }

  Library library_;
  const char* (*error_text_)(int) = nullptr;
  int (*energy_)(NvmlDevice, unsigned long long*) = nullptr;
  std::vector<Device> devices_;
  double since_;
  bool known_ = true;  ///< the values before
};

}  // namespace

OpenedSource open_nvml(const std::vector<std::string>& pci_bus_ids, double now,
                       const std::string& library) {
  Library loaded(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!loaded) {
    const char* why = ::dlerror();
    return {nullptr, fmt::format("NVML cannot be loaded: {}", why ? why : library.c_str())};
  }
  try {
    return {std::make_unique<Nvml>(std::move(loaded), pci_bus_ids, now), ""};
  } catch (const Error& error) {
    return {nullptr, error.what()};
  }
}

}  // namespace lockstep::cluster
