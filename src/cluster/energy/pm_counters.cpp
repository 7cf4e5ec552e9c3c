#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "cluster/energy/energy_source.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/numbers.hpp"

// HPE Cray's counters of a node (docs-csm, User_Access_to_Compute_Node_Power_Data): `energy` in
// joules ("1234 J 1657802513046018 us"), processors, memory and accelerators together; `freshness`
// grows ten times a second while the counters are kept; `generation` grows when a power cap is
// changed. Everybody may read them.
namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;

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

}  // namespace lockstep::cluster
