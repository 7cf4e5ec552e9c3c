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

SlurmEnergy read_slurm_energy(const std::vector<std::vector<std::string>>& starts) {
  if (starts.empty())
    return {std::nullopt, "Slurm's accounting (sacct) does not know the job, or is not here"};
  const std::string& state = starts.back().at(0);
  if (state == "RUNNING" || state == "PENDING")
    return {std::nullopt, fmt::format("the job is {}, and sacct counts at its end", state)};
  double sum = 0;
  for (const std::vector<std::string>& start : starts)
    if (const auto joules = whole_number<std::uint64_t>(start.at(1)); joules < most_joules)
      sum += static_cast<double>(joules.value_or(0));
  if (sum > 0) return {sum, ""};
  return {
      std::nullopt,
      "Slurm's accounting has no figure: the cluster has no AcctGatherEnergyType that measures"};
}

SlurmEnergy slurm_energy(const std::string& job) {
  if (!is_slurm_job(job)) return {std::nullopt, "it ran in no job of Slurm"};
  return read_slurm_energy(ask_sacct(job, {"State", "ConsumedEnergyRaw"}));
}

}  // namespace lockstep::cluster
