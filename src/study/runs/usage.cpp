#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/observe/report.hpp"
#include "study/page/plot.hpp"
#include "study/runs/story.hpp"

namespace lockstep::study {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

/// Steps, or epochs where an epoch is not equally long in all runs.
struct Unit {
  bool epochs = false;
  std::string name() const { return epochs ? "epoch" : "step"; }
  double of(const RunStory& run, double step) const {
    return epochs ? step / static_cast<double>(run.steps_per_epoch()) : step;
  }
};

Unit unit_of(const std::vector<RunStory>& runs) {
  const bool known =
      std::ranges::all_of(runs, [](const RunStory& run) { return run.steps_per_epoch() > 0; });
  const bool equal = std::ranges::all_of(runs, [&](const RunStory& run) {
    return run.steps_per_epoch() == runs.front().steps_per_epoch();
  });
  return {known && !equal};
}

PlotCurve curve_of(const RunStory& run, const Bins<Extremes>& bins, const Unit& unit) {
  PlotCurve curve;
  for (std::size_t k = 0; k < bins.pieces().size(); ++k) {
    const Extremes& piece = bins.pieces()[k];
    const double width = static_cast<double>(bins.width());
    const double middle = std::min(static_cast<double>(k) * width + 0.5 * (width + 1),
                                   static_cast<double>(run.steps));
    if (piece.count == 0) {
      curve.around.push_back({unit.of(run, middle), nothing});
      curve.line.push_back({unit.of(run, middle), nothing});
      continue;
    }
    curve.line.push_back({unit.of(run, middle), piece.mean()});
    Spot least{unit.of(run, static_cast<double>(piece.least_step)), piece.least};
    Spot most{unit.of(run, static_cast<double>(piece.most_step)), piece.most};
    if (most.x < least.x) std::swap(least, most);
    curve.around.insert(curve.around.end(), {least, most});
  }
  if (bins.width() == 1) curve.around.clear();  // the line has all values
  return curve;
}

/// One value for each epoch that has it.
PlotCurve epoch_curve(const RunStory& run, const Unit& unit, auto&& value_of) {
  PlotCurve curve;
  for (const observe::EpochRecord& epoch : run.epochs)
    if (const std::optional<double> value = value_of(epoch))
      curve.line.push_back({unit.of(run, static_cast<double>(epoch.step)), *value});
  if (curve.line.size() > 1000) curve.line.erase(curve.line.begin(), curve.line.end() - 1000);
  if (curve.line.size() <= 120) curve.spots = curve.line;
  return curve;
}

std::vector<PlotMark> restarts_of(const std::vector<RunStory>& runs, const Unit& unit) {
  std::vector<PlotMark> marks;
  for (const RunStory& run : runs)
    for (std::size_t k = 1; k < run.starts.size(); ++k) {
      const Beginning& before = run.starts[k - 1];
      marks.push_back(
          {unit.of(run, static_cast<double>(run.starts[k].start.from_step)),
           fmt::format("{}started again after step {}; before, it {}",
                       runs.size() > 1 ? run.name + ": " : "", run.starts[k].start.from_step,
                       before.end ? before.end->status + ": " + before.end->reason
                                  : "ended without a word")});
    }
  if (marks.size() > 200) marks.resize(200);
  return marks;
}

struct Kind {
  const char *name, *title, *y_name, *caption;
  Bins<Extremes> RunStory::*bins;
  double observe::Validation::*validation;
  bool share;
};
constexpr Kind curve_kinds[] = {
    {"loss", "Loss", "loss", "Loss of each step's global batch, and of validations.",
     &RunStory::loss, &observe::Validation::loss, false},
    {"accuracy", "Accuracy", "top-1", "Top-1: of each step's global batch, and of validations.",
     &RunStory::top1, &observe::Validation::top1, true},
    {"step-time", "Time of a step", "ms", "Rank 0's time of each step.", &RunStory::step_ms,
     nullptr, false}};

void add_run(const RunStory& run, const Kind& kind, const Unit& unit, std::size_t colour,
             bool alone, std::vector<PlotCurve>& curves) {
  const auto add = [&](PlotCurve curve, const std::string& what, std::size_t of, bool dashed,
                       bool dotted = false) {
    if (curve.line.empty()) return;
    curve.name = alone ? what : dashed ? run.name + ", " + what : run.name;
    curve.colour = of;
    curve.dashed = dashed;
    curve.dotted = dotted;
    curves.push_back(std::move(curve));
  };
  const Bins<Extremes>& bins = run.*kind.bins;
  add(curve_of(run, bins, unit),
      bins.width() == 1 ? "each step"
                        : fmt::format("mean of {} steps; faint: their extremes", bins.width()),
      colour, false);
  if (kind.validation == nullptr) return;
  const auto point = [&](const observe::Validation& of) {
    const double value = of.*kind.validation;
    return kind.share && !observe::is_of_classes(of) ? std::nullopt : std::optional(value);
  };
  add(epoch_curve(run, unit,
                  [&](const observe::EpochRecord& epoch) {
                    return epoch.validation ? point(*epoch.validation) : std::nullopt;
                  }),
      "validation", alone ? 1 : colour, !alone);
  add(epoch_curve(run, unit,
                  [&](const observe::EpochRecord& epoch) {
                    return epoch.average ? point(*epoch.average) : std::nullopt;
                  }),
      "the weights' average", alone ? 4 : colour, true, !alone);
}

}  // namespace

std::vector<Block> curves_section(const std::vector<RunStory>& runs) {
  const Unit unit = unit_of(runs);
  const std::vector<PlotMark> marks = restarts_of(runs, unit);
  std::vector<Block> blocks = {Heading{"Course"}};
  for (const Kind& kind : curve_kinds) {
    Plot plot{kind.title, kind.y_name, unit.name(), {}, marks, kind.share};
    for (std::size_t k = 0; k < runs.size(); ++k)
      add_run(runs[k], kind, unit, k, runs.size() == 1, plot.curves);
    std::string svg = plot_svg(plot);
    if (svg.empty()) continue;
    std::string caption = kind.caption;
    if (!marks.empty()) caption += " Vertical lines: the run was started again there.";
    blocks.push_back(Figure{kind.name, std::move(svg), std::move(caption)});
  }
  return blocks.size() > 1 ? blocks : std::vector<Block>{};
}

std::vector<Block> phases_section(const RunStory& run) {
  Stack stack{"Where a step's time goes", "ms", "step", {}, {}, {}};
  for (const observe::StepPart& part : observe::step_parts) stack.parts.push_back(part.name);
  const double width = static_cast<double>(run.phases.width());
  std::size_t k = 0;
  for (const PhaseSums& piece : run.phases.pieces()) {
    stack.edges.push_back(static_cast<double>(k) * width);
    const observe::StepTimes mean = piece.count > 0 ? piece.mean() : observe::StepTimes{};
    std::vector<double>& heights = stack.heights.emplace_back();
    for (const observe::StepPart& part : observe::step_parts) heights.push_back(mean.*part.step);
    ++k;
  }
  stack.edges.push_back(std::min(static_cast<double>(k) * width, static_cast<double>(run.steps)));
  std::string svg = stack_svg(stack);
  if (svg.empty()) return {};
  return {Figure{"phases", std::move(svg),
                 fmt::format("Where a step's time is spent on rank 0: means of {}.",
                             counted(run.phases.width(), "step"))}};
}

// What a run used: core-hours, GPU-hours, energy and cost.

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

/// Ranks that the newest start would not have missed; empty where it had none too many.
std::string spare_ranks(const RunStory& run) {
  if (!run.config || !run.newest()) return "";
  const config::Config& config = *run.config;
  const std::size_t ranks = run.newest()->ranks, each = config.stages * config.tiles;
  const std::size_t shared = config.shards > 0 ? config.shards : config.batch;
  const std::size_t fewest = fewest_parts(shared, ranks / each);
  if (fewest == 0 || fewest * each == ranks) return "";
  return fmt::format("{} would have been as fast as {}: the largest share of {} is {} either way",
                     counted(fewest * each, "rank"), ranks,
                     counted(shared, config.shards > 0 ? "shard" : "row"),
                     even_share(shared, fewest, 0));
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
  if (std::string spare = spare_ranks(run); !spare.empty())
    measured.items.push_back(std::move(spare));
  if (!measured.items.empty()) blocks.push_back(std::move(measured));
  return blocks;
}

}  // namespace lockstep::study
