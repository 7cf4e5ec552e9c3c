#include "lockstep/cluster/energy/slurm_energy.hpp"

#include <fmt/core.h>

#include <cstdint>

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"

namespace lockstep::cluster {
namespace {

/// Above it are the numbers by which Slurm says that it has none (NO_VAL64).
constexpr std::uint64_t most_joules = 1'000'000'000'000'000;

}  // namespace

SlurmEnergy read_slurm_energy(std::string_view answer) {
  const std::size_t bar = answer.find('|');
  if (bar == std::string_view::npos)
    return {std::nullopt, "Slurm's accounting (sacct) does not know the job, or is not here"};
  const auto joules = whole_number<std::uint64_t>(std::string(answer.substr(bar + 1)));
  if (joules && *joules > 0 && *joules < most_joules) return {static_cast<double>(*joules), ""};
  const std::string_view state = answer.substr(0, bar);
  if (state == "RUNNING" || state == "PENDING")
    return {std::nullopt, fmt::format("the job is {}, and sacct counts at its end", state)};
  return {
      std::nullopt,
      "Slurm's accounting has no figure: the cluster has no AcctGatherEnergyType that measures"};
}

SlurmEnergy slurm_energy(const std::string& job) {
  if (!whole_number<std::uint64_t>(job)) return {std::nullopt, "it ran in no job of Slurm"};
  return read_slurm_energy(
      ask_slurm(fmt::format("sacct -n -P -X -j {} -o State,ConsumedEnergyRaw", job)));
}

}  // namespace lockstep::cluster
