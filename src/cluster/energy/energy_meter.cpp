#include "lockstep/cluster/energy/energy_meter.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

#include "cluster/energy/energy_source.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"

namespace lockstep::cluster {
namespace {

/// A source and what it has counted since it was taken.
struct Measured {
  std::unique_ptr<EnergySource> source;
  EnergyUse use;

  void advance(double now) {
    if (!source) return;
    const Consumed got = source->advance(now);
    if (use.why.empty()) use.why = got.lost;
    if (got.seconds <= 0) return;
    use.joules = use.joules.value_or(0) + got.joules;
    use.seconds += got.seconds;
  }
  EnergyUse take() {
    EnergyUse taken = use;
    if (!source) return taken;
    use = {source->name(), source->counts(), std::nullopt, 0, ""};
    if (!taken.joules && taken.why.empty()) taken.why = "the counters were not renewed meanwhile";
    return taken;
  }
};

Measured measured(OpenedSource opened, const char* name, const char* counts) {
  return {std::move(opened.source), {name, counts, std::nullopt, 0, std::move(opened.why)}};
}

/// A node's counters contain those of its processors.
Measured processors(const std::filesystem::path& root, double now) {
  OpenedSource node = open_pm_counters(root, now);
  if (node.source) return measured(std::move(node), "pm_counters", "whole nodes");
  OpenedSource packages = open_rapl(root, now);
  if (!packages.source) packages.why = fmt::format("{}; {}", packages.why, node.why);
  return measured(std::move(packages), "RAPL", "processor packages");
}

}  // namespace

struct EnergyMeter::Impl {
  explicit Impl(Spec wanted) : spec(std::move(wanted)) {
    const double now = now_s();
    all.push_back(processors(spec.root, now));
    if (!spec.gpus.empty())
      all.push_back(measured(open_nvml(spec.gpus, now), "NVML", "the ranks' GPUs"));
    bool any = false;
    for (const Measured& one : all) any = any || one.source;
    if (any) thread = std::thread([this] { run(); });
  }
  ~Impl() {
    {
      const std::scoped_lock lock(mutex);
      ending = true;
    }
    changed.notify_all();
    if (thread.joinable()) thread.join();
  }
  void run() {
    if (spec.enter) spec.enter();
    std::unique_lock lock(mutex);
    const std::chrono::duration<double> every(spec.every_s);
    while (!changed.wait_for(lock, every, [this] { return ending; })) advance();
  }
  void advance() {
    const double now = now_s();
    for (Measured& one : all) one.advance(now);
  }

  const Spec spec;
  std::mutex mutex;
  std::condition_variable changed;
  bool ending = false;
  std::vector<Measured> all;
  std::thread thread;
};

EnergyMeter::EnergyMeter(Spec spec) : impl_(std::make_unique<Impl>(std::move(spec))) {}
EnergyMeter::~EnergyMeter() = default;

std::vector<EnergyUse> EnergyMeter::take() {
  const std::scoped_lock lock(impl_->mutex);
  impl_->advance();
  std::vector<EnergyUse> uses;
  for (Measured& one : impl_->all) uses.push_back(one.take());
  return uses;
}

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
