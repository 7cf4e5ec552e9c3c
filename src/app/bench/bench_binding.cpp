#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/bench/bench_steps.hpp"
#include "app/cli/command_line.hpp"
#include "app/commands.hpp"
#include "app/start/compute.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "lockstep/study/fit/interval.hpp"
#include "lockstep/train/run_data.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

struct BindingBenchOptions : StepOptions {
  std::size_t rounds = 5;
  bool anyway = false;
};

/// One of the two trainings that run in turn in this process. Each places its memory and threads
/// when it is made; the calling thread, which computes for both, moves to its place for each turn.
class Side {
 public:
  Side(const train::RunSpec& spec, comm::Control& control, cluster::CpuSet cpus,
       backend::Backend& backend, comm::Communicator& communicator)
      : cpus_(std::move(cpus)),
        bench_(spec, backend, communicator, control),
        trainer_(bench_.run().trainer_spec(), bench_.run().backend(), bench_.run().reducing()) {}

  void run(std::size_t steps, StepSeries* series) {
    cluster::bind_thread(cpus_);
    bench_.steps(trainer_, steps, series);
  }

 private:
  cluster::CpuSet cpus_;
  StepBench bench_;
  train::Trainer trainer_;
};

/// Medians of each round in ms, by side: bound, unbound. The first step of a turn does not count:
/// it finds the other side's caches.
using Rounds = std::array<std::vector<double>, 2>;

Rounds measure(const BindingBenchOptions& options, const std::array<Side*, 2>& sides) {
  const std::size_t steps = std::max<std::size_t>(options.steps / options.rounds, 1);
  for (Side* side : sides) side->run(options.warm_up, nullptr);
  Rounds rounds;
  study::take_turns(
      sides.size(), [&](std::size_t round) { return round < options.rounds; },
      [&](std::size_t i) {
        StepSeries series;
        sides[i]->run(1, nullptr);
        sides[i]->run(steps, &series);
        rounds[i].push_back(upper_median(series.step));
      });
  return rounds;
}

void report(const std::string& file, const config::Config& config, const Launch& launch,
            const backend::Backend& backend, const Rounds& rounds) {
  const auto rate = [&](const std::vector<double>& ms) {
    return static_cast<double>(config.batch) / upper_median(ms) * 1e3;
  };
  const std::vector<double> ratios = study::ratios_of(rounds[1], rounds[0]);
  const study::Interval ratio = study::span_of(ratios, upper_median(ratios));
  Json json = described(config, launch.rank.world, backend);
  log::info(title_of(json));
  for (const auto& [name, ms] : {std::pair{"bound", &rounds[0]}, std::pair{"unbound", &rounds[1]}})
    log::info(fmt::format("{:<7} {:8.2f} steps/s, {:9.1f} images/s", name, 1e3 / upper_median(*ms),
                          rate(*ms)));
  log::info(fmt::format("bound is {:.3f} times as fast as unbound ({:.3f} to {:.3f} in {} rounds)",
                        ratio.middle, ratio.low, ratio.high, ratios.size()));
  if (file.empty()) return;
  json.update({{"bound_images_per_s", rate(rounds[0])},
               {"unbound_images_per_s", rate(rounds[1])},
               {"ratio", ratio.middle},
               {"ratios", ratios}});
  write_report(file, json_text(json, 2) + "\n");
}

/// True when some rank's machine has several NUMA nodes to choose from.
bool can_differ(Launch& launch, const cluster::Machine& machine) {
  if (launch.control->any(machine.numa.size() > 1, "NUMA nodes")) return true;
  log::info(
      "one NUMA node on each machine: all memory is equally near to all cores, and binding only "
      "keeps threads on their cores (--anyway measures that)");
  return false;
}

int run(Launch& launch, const BindingBenchOptions& options) {
  train::RunSpec spec;
  spec.config = options.config();
  launch.start();
  require(options.rounds > 0, "--rounds must be at least 1");
  const cluster::Machine machine = cluster::look_at_machine();
  if (!can_differ(launch, machine) && !options.anyway) return status_done;
  const std::string backend = decide_backend(launch, choice_name(spec.config.backend));
  config::resolve(spec.config, launch.rank.world);
  spec.synthetic = train::synthetic_rows(spec.config);
  spec.grid = comm::Grid(launch.rank.rank, {.replicas = launch.rank.world});
  spec.nodes = launch.nodes;
  const bool share_gpu = spec.config.comm.share_gpu;
  const cluster::CpuSet given = cluster::current_cpus();
  const ChosenGpu gpu = choose_gpu(launch.rank, backend, share_gpu);
  const cluster::Plan plan = plan_rank(launch, machine, spec.config.threads, gpu.pci_bus_id).plan;

  BoundRank in_place = bind_rank(plan, gpu.ordinal);
  for (const std::string& failure : in_place.report.failures) log::warn(failure);
  Compute compute;
  compute.backend = std::move(in_place.backend);
  const auto communicator = connect(launch, compute, {.share_gpu = share_gpu});
  Side bound(spec, *launch.control, gpu.ordinal ? plan.share : plan.compute.front(),
             *compute.backend, *communicator);

  cluster::bind_thread(given);
  cluster::unbind_memory();
  const std::unique_ptr<backend::Backend> anywhere =
      gpu.ordinal
          ? backend::make_cuda_backend(*gpu.ordinal)
          : backend::make_cpu_backend({std::vector<cluster::CpuSet>(plan.compute.size(), given)});
  Side unbound(spec, *launch.control, given, *anywhere, *communicator);

  const Rounds rounds = measure(options, {&bound, &unbound});
  if (launch.rank.rank == 0) report(options.json, spec.config, launch, *compute.backend, rounds);
  return status_done;
}

}  // namespace

Command add_bench_binding(Arguments bench) {
  auto options = std::make_shared<BindingBenchOptions>();
  options->steps = 25;
  Arguments app = bench.add_command(
      "binding", "The same training steps in turn bound to their cores and memory, and unbound");
  options->add_to(app);
  add_count(app, "--rounds", options->rounds, {1, 1000}, "number of turns of each side");
  app.add_flag("--anyway", options->anyway, "measure even if there is only one NUMA node");
  return {app, [options](Launch& launch) { return run(launch, *options); }};
}

}  // namespace lockstep::app
