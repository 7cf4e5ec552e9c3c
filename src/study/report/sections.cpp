#include "study/report/sections.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text/words.hpp"

namespace lockstep::study {
namespace {

/// Three digits, more for large numbers: "0.123", "12.3", "12345".
std::string digits(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string range(const Interval& interval) {
  return digits(interval.low) + " to " + digits(interval.high);
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string percent_range(const Interval& share) {
  return fmt::format("{:.0f} to {:.0f} %", 100 * share.low, 100 * share.high);
}

std::string optional_digits(const std::optional<double>& value) {
  return value ? digits(*value) : "?";
}

std::vector<std::string> number_row(const Fit& fit, const char* name, double Law::*number,
                                    const char* meaning) {
  const Interval interval = interval_of(fit, number);
  return {name, digits(interval.middle) + " ms", range(interval), meaning};
}

std::string trust(const Analysis& analysis) {
  if (analysis.left_out.empty()) return "Too few points remain to test the law on its largest.";
  std::vector<std::string> errors;
  for (const LeftOut& one : analysis.left_out)
    errors.push_back(fmt::format("{}, batch {}: {:+.1f} % (measured {}, predicted {}, {})",
                                 counted(one.point.ranks, "rank"), one.point.batch,
                                 100 * one.error(), digits(one.point.step_ms),
                                 digits(one.step_ms.middle), range(one.step_ms)));
  return "Without the largest, the law predicts them: " + join(errors, "; ") + " ms.";
}

std::vector<std::string> outliers(const Analysis& analysis) {
  std::vector<std::string> list;
  if (analysis.fit)
    for (const Judged& one : analysis.fit->points)
      if (one.outlier)
        list.push_back(fmt::format(
            "outlier: {}, batch {}: {} ms, {:+.0f} % off the law of all others ({})",
            counted(one.point.ranks, "rank"), one.point.batch, digits(one.point.step_ms),
            100 * one.deviation(), join(one.point.names, ", ")));
  for (const Rejected& one : analysis.rejected)
    list.push_back(fmt::format("not used: {}: {}", one.name, one.reason));
  return list;
}

std::vector<std::string> measured_row(const Point& point, const Base& base) {
  return {std::to_string(point.ranks),
          point.nodes > 0 ? std::to_string(point.nodes) : "?",
          std::to_string(point.batch),
          fmt::format("{:.4g}", point.rows()),
          std::to_string(point.times_ms.size()),
          digits(point.step_ms),
          point.has_exposed ? digits(point.exposed_ms) : "?",
          digits(point.images_per_s()),
          digits(point.rate()),
          percent(point.rate() / base.rate())};
}

/// Caches may make a rank on many ranks a little faster than one on few, but not this much.
std::vector<std::string> too_fast(const std::vector<Point>& points, const Base& base) {
  constexpr double most = 1.3;
  std::vector<std::string> list;
  for (const Point& point : points)
    if (point.rate() > most * base.rate())
      list.push_back(fmt::format(
          "caution: {}, batch {}: an efficiency of {}: either this is wrong, or the base is slow",
          counted(point.ranks, "rank"), point.batch, percent(point.rate() / base.rate())));
  return list;
}

std::string say_cost(const DataCost& cost) {
  return fmt::format(
      "With real data a step took {:.2f} times as long as with synthetic data "
      "({:.2f} to {:.2f} in {}){}",
      cost.times.middle, cost.times.low, cost.times.high,
      counted(cost.configurations, "configuration"),
      cost.times.middle < 1 ? ": what reading costs is less than what the runs vary by." : ".");
}

/// What the measured sums leave exposed, compared with what was, on the most ranks.
std::string computed_exposed(const Fit& fit) {
  const Judged* most = nullptr;
  for (const Judged& one : fit.points)
    if (!one.outlier && one.point.has_exposed) most = &one;
  std::string text =
      fmt::format("Exposed communication is computed from what bench comm measured, for {}.",
                  counted(fit.law.buckets, "bucket"));
  if (most)
    text += fmt::format(
        " On {} ranks with {:g} rows it is {:.2f} ms; measured were {:.2f} ms.", most->point.ranks,
        most->point.rows(),
        fit.law.split(most->point.rows(), static_cast<double>(most->point.ranks)).exposed,
        most->point.exposed_ms);
  return text;
}

}  // namespace

std::string subject(const Analysis& analysis) {
  std::vector<std::string> parts;
  for (const std::string* part : {&analysis.network, &analysis.precision})
    if (!part->empty()) parts.push_back(*part);
  std::string text = parts.empty() ? "training" : join(parts, ", ");
  if (!analysis.machine.empty()) text += " on " + analysis.machine;
  return text;
}

std::vector<Block> rehearsal_section(const Analysis& analysis) {
  if (!analysis.rehearsal) return {};
  return {
      Paragraph{"This is a rehearsal (--backend clock): its steps waited as long as they were "
                "told to, and computed nothing. It says nothing about speed, and is no ground "
                "for a proposal."}};
}

std::vector<Block> measured_section(const Analysis& analysis) {
  const Base base = base_of(analysis.points);
  TextTable table;
  table.rows = {{"ranks", "nodes", "batch", "rows a rank", "runs", "ms a step", "exposed comm.",
                 "images/s", "a rank", "efficiency"}};
  for (const Point& point : analysis.points) table.rows.push_back(measured_row(point, base));
  table.caption = fmt::format("Medians over runs{}. Efficiency is relative to {}.",
                              analysis.synthetic ? " on synthetic data" : "", base.text());
  std::vector<Block> blocks = {Heading{"What was measured"}, table};
  if (const std::vector<std::string> fast = too_fast(analysis.points, base); !fast.empty())
    blocks.push_back(Items{fast});
  if (analysis.data_cost) blocks.push_back(Paragraph{say_cost(*analysis.data_cost)});
  if (analysis.waits_for_data)
    blocks.push_back(Paragraph{fmt::format(
        "Warning: ranks waited for data for up to {} of a step, which no law of computing and "
        "communication explains. More loader threads, or data nearer to the ranks, come first.",
        percent(*analysis.waits_for_data))});
  return blocks;
}

std::vector<Block> law_section(const Analysis& analysis) {
  std::vector<Block> blocks = {Heading{"The law"}};
  const std::vector<std::string> odd = outliers(analysis);
  if (!analysis.fit) {
    blocks.push_back(Paragraph{analysis.why_no_fit});
    if (!odd.empty()) blocks.push_back(Items{odd});
    return blocks;
  }
  const Fit& fit = *analysis.fit;
  blocks.push_back(Paragraph{
      "Time of a step = c b + a + exposed communication + jitter, for b rows on each rank."});
  TextTable table;
  table.rows = {{"number", "value", percent(fit.confidence) + " interval", "meaning"},
                number_row(fit, "c", &Law::c_ms, "for each row of a rank"),
                number_row(fit, "a", &Law::a_ms, "for each step, whatever the rows")};
  const auto add_term = [&](const char* name, double Law::*number, bool takes_part,
                            const char* meaning) {
    if (fit.law.measured_sums)
      table.rows.push_back(
          {name, fmt::format("{:.3g} ms", fit.law.*number), "bench comm", meaning});
    else if (takes_part)
      table.rows.push_back(number_row(fit, name, number, meaning));
  };
  add_term("alpha", &Law::alpha_ms, fit.has_alpha,
           "latency of a bucket, for each doubling of the ranks");
  add_term("wire", &Law::wire_ms, fit.has_wire, "all gradients over a link");
  if (fit.law.jitter > 0)
    table.rows.push_back({"jitter", fmt::format("{:.1f} %", 100 * fit.law.jitter), "measured",
                          "spread of a rank's step"});
  blocks.push_back(table);
  std::string rest = fmt::format("Points scatter around it by {:.1f} %.", 100 * fit.scatter);
  if (!fit.has_communication())
    rest +=
        " The points call for no term of communication: what they lose with more ranks is the "
        "rows of a rank getting fewer, or part of a.";
  blocks.push_back(Paragraph{rest + " " + trust(analysis)});
  if (fit.law.measured_sums) blocks.push_back(Paragraph{computed_exposed(fit)});
  if (!odd.empty()) blocks.push_back(Items{odd});
  if (!analysis.summaries.empty()) {
    blocks.push_back(Paragraph{
        "Derived summaries. They know nothing of rows a rank, so do not extrapolate them:"});
    blocks.push_back(Items{analysis.summaries});
  }
  return blocks;
}

std::vector<Block> forecast_section(const Analysis& analysis) {
  if (!analysis.forecasts) return {};
  const Forecasts& all = *analysis.forecasts;
  TextTable table;
  table.rows = {{"ranks", "nodes", "batch", "rows a rank", "ms a step", "interval", "images/s",
                 "efficiency", "interval", "rows", "fixed", "exposed", "jitter"}};
  std::vector<std::string> cautions;
  for (const Forecast& size : all.sizes) {
    const auto share = [&](double ms) { return percent(ms / size.split.total()); };
    table.rows.push_back(
        {std::to_string(size.ranks), std::to_string(size.nodes), std::to_string(size.batch),
         fmt::format("{:.4g}", size.rows()), digits(size.step_ms.middle), range(size.step_ms),
         digits(size.images_per_s.middle), percent(size.efficiency.middle),
         percent_range(size.efficiency), share(size.split.compute), share(size.split.fixed),
         share(size.split.exposed), share(size.split.jitter)});
    if (!size.caution.empty()) cautions.push_back("caution: " + size.caution);
  }
  table.caption = fmt::format("{}{}; {} prediction intervals; efficiency relative to {}.",
                              all.strong ? fmt::format("Strong scaling, batch {}", all.rows)
                                         : fmt::format("Weak scaling, {} rows a rank", all.rows),
                              all.asked ? "" : " (as measured: --batch names another)",
                              percent(analysis.fit->confidence), all.base.text());
  if (std::ranges::any_of(all.sizes,
                          [](const Forecast& one) { return one.efficiency.middle > 1.02; }))
    cautions.push_back(
        "an efficiency above 100 %: with more rows a rank than the base has, fixed costs of a step "
        "count less");
  std::vector<Block> blocks = {Heading{"What to expect"}, table};
  if (!cautions.empty()) blocks.push_back(Items{cautions});
  return blocks;
}

std::vector<Block> cost_section(const Analysis& analysis, const AnalysisSpec& spec) {
  if (!analysis.forecasts || analysis.rehearsal) return {};
  const Forecasts& all = *analysis.forecasts;
  std::vector<Block> blocks = {Heading{"What it costs, and which size to ask for"}};
  if (!all.sizes.empty() && all.sizes.front().epoch_node_hours) {
    TextTable table;
    table.rows = {{"ranks", "nodes", "batch", "epoch, h", "epoch, node-h", "epochs", "training, h",
                   "training, node-h"}};
    for (const Forecast& size : all.sizes)
      table.rows.push_back({std::to_string(size.ranks), std::to_string(size.nodes),
                            std::to_string(size.batch), optional_digits(size.epoch_hours),
                            optional_digits(size.epoch_node_hours), optional_digits(size.epochs),
                            optional_digits(size.training_hours),
                            optional_digits(size.training_node_hours)});
    table.caption = "Steps only: validation, checkpoints and start-up come on top.";
    if (spec.forecast.epochs || spec.imagenet) {
      const EpochsCurve curve = spec.forecast.epochs.value_or(reference_epochs());
      table.caption += fmt::format(" Epochs to {} by {}.", curve.goal, curve.source);
    }
    blocks.push_back(table);
  }
  const Recommendation& best = all.recommendation;
  blocks.push_back(Paragraph{best.size ? fmt::format("Recommended: {} on {} with batch {}: {}.",
                                                     counted(best.size->ranks, "rank"),
                                                     counted(best.size->nodes, "node"),
                                                     best.size->batch, best.why)
                                       : best.why + "."});
  return blocks;
}

}  // namespace lockstep::study
