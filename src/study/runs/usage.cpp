#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "study/runs/story.hpp"

// What a run used: core-hours, GPU-hours, energy and cost.
namespace lockstep::study {
namespace {

using observe::LedgerSum;

/// Of all nodes: a processor that several ranks share counts once. 0: unknown.
std::size_t cpus_of(const RunStory& run) {
  std::set<std::pair<std::string, int>> all;
  try {
    for (const observe::RankBinding& rank : run.bindings)
      for (const int cpu : cluster::parse_cpus(rank.share)) all.insert({rank.host, cpu});
  } catch (const InputError&) {
    return 0;  // the picture of the nodes says it
  }
  return all.size();
}

/// For runs of programs without a ledger: the hours of all starts, times what the newest one had.
std::string hours_by_binding(const RunStory& run, std::size_t count) {
  double seconds = 0;
  for (const Beginning& one : run.starts) {
    if (one.start.ranks != run.bindings.size()) return "unknown: a start had other ranks";
    seconds += one.seconds();
  }
  return fmt::format("{:.3f}", seconds / 3600 * static_cast<double>(count));
}

/// By the prices of config.toml, for the times of starts that left no record, too.
void add_costs(std::vector<observe::LedgerRecord>& records, const RunStory& run) {
  if (!run.config) return;
  const auto& prices = run.config->cost;
  for (observe::LedgerRecord& one : records)
    if (!one.cost) one.cost = observe::cost_of(one, prices.per_core_hour, prices.per_gpu_hour);
}

LedgerSum divided(LedgerSum sum, double by) {
  sum.seconds /= by;
  sum.core_hours /= by;
  sum.gpu_hours /= by;
  if (sum.cost) *sum.cost /= by;
  for (observe::EnergyFigure& figure : sum.energy) {
    if (figure.joules) *figure.joules /= by;
    figure.seconds /= by;
  }
  return sum;
}

std::string energy_of(const LedgerSum& sum, const std::string& source) {
  const auto found = std::ranges::find(sum.energy, source, &observe::EnergyFigure::source);
  if (found == sum.energy.end()) return "-";
  return found->joules ? observe::joules_text(*found->joules) : "not measured";
}

/// The time that core-hours leave out.
std::string without(const RunStory& run) {
  double unknown_s = 0;
  for (const observe::LedgerRecord& one : run.ledger)
    if (one.cores == 0) unknown_s += one.seconds;
  return unknown_s > 0
             ? fmt::format(" (without {}, whose cores are unknown)", human_seconds(unknown_s))
             : "";
}

/// One row of the table: the value of each sum.
std::vector<std::string> row_of(const std::string& name, const std::vector<LedgerSum>& sums,
                                auto&& value) {
  std::vector<std::string> row = {name};
  for (const LedgerSum& sum : sums) row.push_back(value(sum));
  return row;
}

}  // namespace

std::size_t gpus_of(const RunStory& run) {
  std::set<std::pair<std::string, std::string>> gpus;
  for (const observe::RankBinding& rank : run.bindings)
    if (!rank.gpu.empty()) gpus.insert({rank.host, rank.gpu});
  return gpus.size();
}

std::vector<std::vector<std::string>> used_rows(const RunStory& run) {
  const char* unknown = "not measured: its program read no energy counter";
  if (run.ledger.empty()) {
    std::vector<std::vector<std::string>> rows;
    if (const std::size_t cpus = cpus_of(run))
      rows.push_back({"CPU-hours (logical processors), all starts", hours_by_binding(run, cpus)});
    if (const std::size_t gpus = gpus_of(run))
      rows.push_back({"GPU-hours, all starts", hours_by_binding(run, gpus)});
    rows.push_back({"Total Energy Consumed", unknown});
    return rows;
  }
  const LedgerSum sum = observe::sum_of(run.ledger);
  std::vector<std::string> energy;
  for (const observe::EnergyFigure& figure : sum.energy)
    energy.push_back(observe::energy_text(figure, sum.seconds, run.ledger.back().machines));
  return {{"Core-hours, all starts", fmt::format("{:.4g}", sum.core_hours) + without(run)},
          {"GPU-hours, all starts", fmt::format("{:.4g}", sum.gpu_hours)},
          {"Total Energy Consumed",
           energy.empty() ? "not measured: no start left a record of it" : join(energy, "; ")}};
}

std::vector<Block> ledger_section(const RunStory& run) {
  if (run.ledger.empty()) return {};
  std::vector<observe::LedgerRecord> records = run.ledger;
  add_costs(records, run);
  const auto best = run.best();
  TextTable table;
  table.rows = {{"", "all starts"}};
  std::vector<LedgerSum> sums = {observe::sum_of(records)};
  if (!run.epochs.empty()) {
    const std::uint64_t done = run.epochs.back().epoch;
    if (const LedgerSum all = observe::sum_until(records, done); all.records > 0) {
      sums.push_back(divided(all, static_cast<double>(done)));
      table.rows.front().push_back(fmt::format("a mean epoch of {}", done));
    }
  }
  if (best) {
    sums.push_back(observe::sum_until(records, best->epoch));
    table.rows.front().push_back(fmt::format("to the best validation, epoch {}", best->epoch));
  }
  table.rows.push_back(
      row_of("time", sums, [](const LedgerSum& sum) { return human_seconds(sum.seconds); }));
  for (const auto& [name, hours] :
       {std::pair{"core-hours", &LedgerSum::core_hours}, {"GPU-hours", &LedgerSum::gpu_hours}})
    table.rows.push_back(row_of(name, sums, [hours = hours](const LedgerSum& sum) {
      return fmt::format("{:.4g}", sum.*hours);
    }));
  Items measured;
  for (const observe::EnergyFigure& figure : sums.front().energy) {
    table.rows.push_back(row_of("energy, " + figure.counts, sums, [&](const LedgerSum& sum) {
      return energy_of(sum, figure.source);
    }));
    measured.items.push_back(
        "energy of all starts: " +
        observe::energy_text(figure, sums.front().seconds, records.back().machines));
  }
  if (sums.front().cost)
    table.rows.push_back(row_of("cost", sums, [](const LedgerSum& sum) {
      return sum.cost ? fmt::format("{:.4g}", *sum.cost) : "-";
    }));
  table.caption =
      "A core is a physical one; each counts once, however many ranks have it, from the start's "
      "process on. Counters of packages and nodes also count what other jobs on them used. Cost is "
      "by cost.per-core-hour and cost.per-gpu-hour.";
  std::vector<Block> blocks = {Heading{"What it used"}, std::move(table)};
  if (!measured.items.empty()) blocks.push_back(std::move(measured));
  return blocks;
}

}  // namespace lockstep::study
