#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "cluster/energy/energy_source.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
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

}  // namespace lockstep::cluster
