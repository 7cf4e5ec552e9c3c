#include "cluster/energy/energy_source.hpp"

#include <dlfcn.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/text/numbers.hpp"

// Linux's powercap (Documentation/power/powercap/powercap.rst): each zone has a counter of
// microjoules, energy_uj, which starts again after max_energy_range_uj. Zones of the first level
// are packages, and psys, which contains them; their sub-zones (core, uncore, dram) are left out,
// since most of them are a part of the package. intel-rapl and intel-rapl-mmio are two ways to one
// counter.
namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;

/// Throws InputError naming the file.
std::uint64_t microjoules(const fs::path& file) {
  std::string text = read_text(file);
  text.erase(text.find_last_not_of(" \n") + 1);
  const auto value = whole_number<std::uint64_t>(text);
  require(value.has_value(), fmt::format("{}: '{}' is no number", file.string(), text));
  return *value;
}

/// The number of a zone of the first level, "intel-rapl:1", of this kind.
std::optional<std::uint64_t> zone_number(const std::string& name, const std::string& kind) {
  if (!name.starts_with(kind + ":")) return std::nullopt;
  return whole_number<std::uint64_t>(std::string_view(name).substr(kind.size() + 1));
}

struct Zone {
  fs::path folder;
  std::string name;  ///< "package-0", "package-0-die-1"
  std::uint64_t range = 0, before = 0;
  std::uint64_t read() const { return microjoules(folder / "energy_uj"); }
  std::string package() const { return name.substr(0, name.find("-die")); }
};

/// The packages of one kind, by number.
std::vector<Zone> packages(const fs::path& folder, const std::string& kind) {
  std::vector<std::pair<std::uint64_t, Zone>> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const auto number = zone_number(entry.path().filename().string(), kind);
    if (!number) continue;
    Zone zone{.folder = entry.path(), .name = first_line(entry.path() / "name")};
    if (zone.name.starts_with("package")) found.emplace_back(*number, std::move(zone));
  }
  std::ranges::sort(found, {}, &std::pair<std::uint64_t, Zone>::first);
  std::vector<Zone> zones;
  for (auto& [number, zone] : found) zones.push_back(std::move(zone));
  return zones;
}

/// Some processors show one counter of a package as that of each of its dies: what is read between
/// two readings of another die lies between their values.
bool mirrors(const Zone& zone, const Zone& other) {
  if (zone.package() != other.package()) return false;
  const std::uint64_t low = other.read(), value = zone.read(), high = other.read();
  return low <= value && value <= high;
}

/// Each package once.
std::vector<Zone> choose_zones(const fs::path& folder) {
  std::vector<Zone> chosen;
  for (const char* kind : {"intel-rapl", "intel-rapl-mmio"})
    for (Zone& zone : packages(folder, kind)) {
      const bool known = std::ranges::any_of(chosen, [&](const Zone& other) {
        return zone.name == other.name || mirrors(zone, other);
      });
      if (known) continue;
      zone.range = microjoules(zone.folder / "max_energy_range_uj");
      chosen.push_back(std::move(zone));
    }
  return chosen;
}

class Rapl final : public EnergySource {
 public:
  Rapl(std::vector<Zone> zones, double now) : zones_(std::move(zones)), since_(now) {
    for (Zone& zone : zones_) zone.before = zone.read();
  }
  std::string name() const override { return "RAPL"; }
  std::string counts() const override { return "processor packages"; }

  /// A counter may start again once between two calls: a package of 500 W takes two minutes for
  /// the smallest range, 65 kJ.
  Consumed advance(double now) override {
    Consumed got{.joules = 0, .seconds = now - std::exchange(since_, now), .lost = ""};
    const bool knew = std::exchange(known_, false);
    std::uint64_t sum = 0;
    try {
      for (Zone& zone : zones_) {
        const std::uint64_t value = zone.read();
        const std::uint64_t before = std::exchange(zone.before, value);
        sum += value >= before ? value - before : zone.range - before + value;
      }
    } catch (const Error& error) {
      return {.joules = 0, .seconds = 0, .lost = error.what()};
    }
    known_ = true;
    if (!knew) return {.joules = 0, .seconds = 0, .lost = "a counter could not be read before"};
    got.joules = 1e-6 * static_cast<double>(sum);
    return got;
  }

 private:
  std::vector<Zone> zones_;
  double since_;
  bool known_ = true;  ///< the values before
};

}  // namespace

OpenedSource open_rapl(const fs::path& root, double now) {
  const fs::path folder = root / "sys/class/powercap";
  std::error_code none;
  if (!fs::is_directory(folder, none))
    return {nullptr, fmt::format("there is no {}", folder.string())};
  try {
    std::vector<Zone> zones = choose_zones(folder);
    if (zones.empty()) return {nullptr, fmt::format("{} has no package", folder.string())};
    return {std::make_unique<Rapl>(std::move(zones), now), ""};
  } catch (const Error& error) {
    return {nullptr, error.what()};  // mostly: only root may read it, since Linux 5.10
  } catch (const fs::filesystem_error& error) {
    return {nullptr, fmt::format("{}: {}", folder.string(), error.code().message())};
  }
}

// HPE Cray's counters of a node (docs-csm, User_Access_to_Compute_Node_Power_Data): `energy` in
// joules ("1234 J 1657802513046018 us"), processors, memory and accelerators together; `freshness`
// grows ten times a second while the counters are kept; `generation` grows when a power cap is
// changed. Everybody may read them.

namespace {

struct CraySample {
  std::uint64_t generation = 0, freshness = 0, joules = 0;
};

/// The number with which a file begins. Throws InputError naming it.
std::uint64_t cray_number(const fs::path& file) {
  const std::string text = read_text(file);
  const std::string_view word = std::string_view(text).substr(0, text.find_first_of(" \n"));
  const auto value = whole_number<std::uint64_t>(word);
  require(value.has_value(), fmt::format("{}: '{}' is no number", file.string(), word));
  return *value;
}

/// Empty: the generation changed meanwhile. Throws InputError naming the file.
std::optional<CraySample> cray_sample(const fs::path& folder) {
  CraySample sample{.generation = cray_number(folder / "generation"),
                    .freshness = cray_number(folder / "freshness"),
                    .joules = cray_number(folder / "energy")};
  if (cray_number(folder / "generation") != sample.generation) return std::nullopt;
  return sample;
}

class PmCounters final : public EnergySource {
 public:
  PmCounters(fs::path folder, const CraySample& first, double now)
      : folder_(std::move(folder)), before_(first), since_(now) {}
  std::string name() const override { return "pm_counters"; }
  std::string counts() const override { return "whole nodes"; }

  Consumed advance(double now) override {
    try {
      const std::optional<CraySample> sample = cray_sample(folder_);
      if (!sample) return lost("the generation changed within a sample");
      // They stand still for a tenth of a second anyway; what is missing then comes later.
      constexpr double stale_s = 2;
      if (sample->freshness == before_.freshness && sample->generation == before_.generation)
        return now - since_ < stale_s
                   ? Consumed{}
                   : lost(fmt::format("{}: the counters stand still", folder_.string()));
      const CraySample before = std::exchange(before_, *sample);
      const double seconds = now - std::exchange(since_, now);
      if (sample->generation != before.generation)
        return lost(fmt::format("the generation changed from {} to {} in {:.1f} s",
                                before.generation, sample->generation, seconds));
      if (sample->joules < before.joules) return lost("the counter began again");
      return {static_cast<double>(sample->joules - before.joules), seconds, ""};
    } catch (const Error& error) {
      return lost(error.what());
    }
  }

 private:
  static Consumed lost(std::string why) { return {0, 0, std::move(why)}; }

  fs::path folder_;
  CraySample before_;
  double since_;  ///< when that was taken
};

}  // namespace

OpenedSource open_pm_counters(const fs::path& root, double now) {
  const fs::path folder = root / "sys/cray/pm_counters";
  std::error_code none;
  if (!fs::is_directory(folder, none))
    return {nullptr, fmt::format("there is no {}", folder.string())};
  try {
    constexpr int tries = 3;
    for (int i = 0; i < tries; ++i)
      if (const auto first = cray_sample(folder))
        return {std::make_unique<PmCounters>(folder, *first, now), ""};
    return {nullptr, fmt::format("{}: the generation changes all the time", folder.string())};
  } catch (const Error& error) {
    return {nullptr, error.what()};
  }
}

// NVML's counter of a GPU's energy: millijoules since the driver was loaded, on Volta and newer
// (docs.nvidia.com/deploy/nvml-api). The library belongs to the driver, so it is looked for where
// the program runs; its calls are declared here, and no header is needed to build.

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
