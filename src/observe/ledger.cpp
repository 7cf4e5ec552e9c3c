#include "lockstep/observe/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::observe {
namespace {

double hours_of(const LedgerRecord& record, std::uint64_t count) {
  return record.seconds * static_cast<double>(count) / 3600;
}

void add_figure(EnergyFigure& sum, const EnergyFigure& more) {
  if (more.joules) sum.joules = sum.joules.value_or(0) + *more.joules;
  sum.seconds += more.seconds;
  sum.machines = std::min(sum.machines, more.machines);
  if (sum.why.empty()) sum.why = more.why;
}

LedgerSum sum_of_some(std::span<const LedgerRecord> records) {
  LedgerSum sum;
  for (const LedgerRecord& one : records) {
    ++sum.records;
    sum.seconds += one.seconds;
    sum.core_hours += hours_of(one, one.cores);
    sum.gpu_hours += hours_of(one, one.gpus);
    if (one.cost) sum.cost = sum.cost.value_or(0) + *one.cost;
    for (EnergyFigure figure : one.energy) {
      // Later the number of machines is the newest record's.
      if (figure.joules && figure.why.empty() && figure.machines < one.machines &&
          one.machines != records.back().machines)
        figure.why = fmt::format("{} of {} for {}", one.machines - figure.machines,
                                 counted(one.machines, "machine"), human_seconds(one.seconds));
      const auto known = std::ranges::find(sum.energy, figure.source, &EnergyFigure::source);
      if (known == sum.energy.end())
        sum.energy.push_back(figure);
      else
        add_figure(*known, figure);
    }
  }
  return sum;
}

std::string hours_text(const LedgerSum& sum) {
  std::vector<std::string> parts = {human_seconds(sum.seconds)};
  if (sum.core_hours > 0) parts.push_back(fmt::format("{:.4g} core-hours", sum.core_hours));
  if (sum.gpu_hours > 0) parts.push_back(fmt::format("{:.4g} GPU-hours", sum.gpu_hours));
  if (sum.cost) parts.push_back(fmt::format("cost {:.4g}", *sum.cost));
  return join(parts, ", ");
}

}  // namespace

std::optional<double> cost_of(const LedgerRecord& record, double per_core_hour,
                              double per_gpu_hour) {
  if (per_core_hour == 0 && per_gpu_hour == 0) return std::nullopt;
  if (per_core_hour > 0 && record.cores == 0) return std::nullopt;
  return hours_of(record, record.cores) * per_core_hour +
         hours_of(record, record.gpus) * per_gpu_hour;
}

LedgerSum sum_of(const std::vector<LedgerRecord>& records) { return sum_of_some(records); }

LedgerSum sum_until(const std::vector<LedgerRecord>& records, std::uint64_t epoch) {
  const auto last = std::find_if(records.rbegin(), records.rend(),
                                 [&](const LedgerRecord& one) { return one.epoch == epoch; });
  return sum_of_some({records.begin(), last.base()});
}

std::string joules_text(double joules) {
  const char* unit = "";
  for (const char* next : {"k", "M", "G"}) {
    if (joules < 1000) break;
    joules /= 1000;
    unit = next;
  }
  return fmt::format("{:.4g} {}J", joules, unit);
}

WholeEnergy whole_energy(const LedgerRecord& record) {
  WholeEnergy whole;
  for (const EnergyFigure& figure : record.energy) {
    if (figure.machines < record.machines || !figure.why.empty()) continue;
    if (figure.joules.value_or(0) <= 0) continue;  // a counter that does not count
    if (figure.source == "pm_counters") return {figure.joules, figure.source};
    whole.joules = whole.joules.value_or(0) + *figure.joules;
    whole.of += (whole.of.empty() ? "" : "+") + figure.source;
  }
  return whole;
}

std::string energy_text(const EnergyFigure& figure, double seconds, std::uint64_t machines) {
  const std::string who = fmt::format("{}: {}", figure.source, figure.counts);
  if (!figure.joules) return fmt::format("not measured ({}): {}", who, figure.why);
  std::string text = fmt::format("{} ({}", joules_text(*figure.joules), who);
  if (figure.machines < machines)
    text += fmt::format(", on {} of {}", figure.machines, counted(machines, "machine"));
  // The ranks' start is never measured.
  constexpr double telling_s = 1, telling = 0.05;
  const double missing = seconds - figure.seconds;
  if (missing > telling_s && missing > telling * seconds)
    text += fmt::format(", in {} of {}", human_seconds(figure.seconds), human_seconds(seconds));
  text += ")";
  return figure.why.empty() ? text : fmt::format("{}, the rest not measured: {}", text, figure.why);
}

std::string ledger_line(const std::vector<LedgerRecord>& records, std::uint64_t best_epoch) {
  const LedgerSum all = sum_of(records);
  std::vector<std::string> energy;
  for (const EnergyFigure& figure : all.energy)
    energy.push_back(energy_text(figure, all.seconds, records.back().machines));
  std::vector<std::string> parts = {"used " + hours_text(all)};
  if (!energy.empty()) parts.push_back("energy " + join(energy, "; "));
  const LedgerSum best = best_epoch > 0 ? sum_until(records, best_epoch) : LedgerSum{};
  if (best.records > 0 && best.records < all.records)
    parts.push_back(fmt::format("to the best validation {}", hours_text(best)));
  return join(parts, "; ");
}

}  // namespace lockstep::observe
