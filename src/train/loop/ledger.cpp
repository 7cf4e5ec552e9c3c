#include "lockstep/train/loop/ledger.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "lockstep/base/clock.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::train {
namespace {

struct HeldByRank {
  std::string cores, gpu;  ///< cores as text: most ranks have the same few

  static void fields(auto& self, auto&& visit) { visit(self.cores, self.gpu); }
};

/// What the ranks of one machine have.
struct HeldByMachine {
  cluster::CpuSet cores;
  std::set<std::string> gpus;
};

/// Collective.
std::map<std::string, HeldByMachine> gather_held(const RunSpec& spec, comm::Control& control) {
  const HeldByRank mine{cluster::to_string(spec.cores), spec.gpu_pci_bus_id};
  const auto ranks = comm::gather_records(control, mine, "what the ranks have");
  std::map<std::string, HeldByMachine> machines;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    HeldByMachine& held = machines[spec.nodes.machine_of(static_cast<int>(rank))];
    held.cores = cluster::joined(held.cores, cluster::parse_cpus(ranks[rank].cores));
    if (!ranks[rank].gpu.empty()) held.gpus.insert(ranks[rank].gpu);
  }
  return machines;
}

void add_machine(observe::EnergyFigure& figure, const cluster::EnergyUse& use) {
  if (figure.why.empty()) figure.why = use.why;
  if (!use.joules) return;
  figure.joules = figure.joules.value_or(0) + *use.joules;
  figure.seconds = figure.machines == 0 ? use.seconds : std::min(figure.seconds, use.seconds);
  ++figure.machines;
}

}  // namespace

Ledger::Ledger(const RunSpec& spec, comm::Control& control)
    : spec_(spec), control_(control), since_s_(spec.started_s) {
  const auto machines = gather_held(spec, control);
  hardware_.machines = machines.size();
  for (const auto& [name, held] : machines) {
    hardware_.cores += held.cores.size();
    hardware_.gpus += held.gpus.size();
  }
  if (spec.nodes.ranks_on_machine_of(control.rank()).front() != control.rank()) return;
  const std::set<std::string>& gpus = machines.at(spec.nodes.machine_of(control.rank())).gpus;
  meter_ = std::make_unique<cluster::EnergyMeter>(cluster::EnergyMeter::Spec{
      .root = spec.machine_root, .gpus = {gpus.begin(), gpus.end()}, .enter = spec.bind_worker});
}

void Ledger::add_earlier(const std::filesystem::path& metrics) {
  std::vector<observe::LedgerRecord> earlier;
  observe::read_records(metrics, [&](const observe::Record& record) {
    if (const auto* one = std::get_if<observe::LedgerRecord>(&record)) earlier.push_back(*one);
    return true;
  });
  records_.insert(records_.begin(), earlier.begin(), earlier.end());
}

std::vector<cluster::EnergyUse> Ledger::take_energy() {
  return meter_ ? meter_->take() : std::vector<cluster::EnergyUse>();
}

observe::LedgerRecord Ledger::record(std::uint64_t epoch, std::uint64_t step) {
  return add_up(comm::gather_records_at_root(control_, take_energy(), "energy"), epoch, step);
}

observe::LedgerRecord Ledger::record_alone(std::uint64_t epoch, std::uint64_t step) {
  observe::LedgerRecord record = add_up({take_energy()}, epoch, step);
  for (observe::EnergyFigure& figure : record.energy)
    if (figure.why.empty() && figure.machines < record.machines)
      figure.why = "other machines could not be asked any more";
  return record;
}

observe::LedgerRecord Ledger::add_up(const std::vector<std::vector<cluster::EnergyUse>>& machines,
                                     std::uint64_t epoch, std::uint64_t step) {
  const double now = now_s();
  observe::LedgerRecord record{.epoch = epoch,
                               .step = step,
                               .seconds = now - std::exchange(since_s_, now),
                               .cores = hardware_.cores,
                               .gpus = hardware_.gpus,
                               .machines = hardware_.machines,
                               .cost = std::nullopt,
                               .energy = {}};
  record.cost =
      observe::cost_of(record, spec_.config.cost.per_core_hour, spec_.config.cost.per_gpu_hour);
  for (const std::vector<cluster::EnergyUse>& uses : machines)
    for (const cluster::EnergyUse& use : uses) {
      auto known = std::ranges::find(record.energy, use.source, &observe::EnergyFigure::source);
      if (known == record.energy.end()) {
        record.energy.push_back({.source = use.source, .counts = use.counts});
        known = record.energy.end() - 1;
      }
      add_machine(*known, use);
    }
  if (control_.rank() == 0) records_.push_back(record);
  return record;
}

}  // namespace lockstep::train
