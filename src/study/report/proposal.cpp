#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/text/words.hpp"

#include "study/report/chart.hpp"
#include "study/report/sections.hpp"

namespace lockstep::study {
namespace {

std::string how_measured(const Analysis& analysis) {
  const Fit& fit = *analysis.fit;
  std::size_t runs = 0, least = analysis.points.front().ranks;
  for (const Point& point : analysis.points) runs += point.times_ms.size();
  std::string text = fmt::format("We measured the time of a step of {} in {} of {} on {} to {}. ",
                                 subject(analysis), counted(runs, "run"),
                                 counted(analysis.points.size(), "configuration"), least,
                                 counted(fit.most_ranks(), "rank"));
  text += fmt::format(
      "It follows t = c b + a{}{} with c = {:.3g} ms for each of the b rows of a rank and a = "
      "{:.3g} "
      "ms, and scatters around this law by {:.1f} %. ",
      fit.has_communication() ? " + exposed communication" : "",
      fit.law.jitter > 0 ? " + jitter" : "", fit.law.c_ms, fit.law.a_ms, 100 * fit.scatter);
  double worst = 0;
  for (const LeftOut& one : analysis.left_out) worst = std::max(worst, std::abs(one.error()));
  constexpr double good = 0.1;
  if (!analysis.left_out.empty())
    text += fmt::format(
        "Fitted without the runs on {}, it {} {:.1f} %{}. ", counted(fit.most_ranks(), "rank"),
        worst <= good ? "predicts them within" : "misses them by up to", 100 * worst,
        worst <= good ? "" : ", so what it says about other sizes is uncertain");
  return text;
}

std::string what_is_asked(const Analysis& analysis, const Forecast& size, std::size_t trainings) {
  std::string text = fmt::format(
      "We will use {} on {} with a global batch of {}. There we expect {:.0f} images/s "
      "({:.0f} to {:.0f}, {:.0f} % prediction interval), {:.0f} % efficiency relative to {}. ",
      counted(size.ranks, "rank"), counted(size.nodes, "node"), size.batch,
      size.images_per_s.middle, size.images_per_s.low, size.images_per_s.high,
      100 * analysis.fit->confidence, 100 * size.efficiency.middle,
      analysis.forecasts->base.text());
  text += "We chose this size because " + analysis.forecasts->recommendation.why + ". ";
  if (size.epoch_node_hours)
    text += fmt::format("An epoch of {} images takes {:.3g} h and costs {:.3g} node-h. ",
                        analysis.forecasts->epoch_rows, *size.epoch_hours, *size.epoch_node_hours);
  if (size.training_node_hours)
    text += fmt::format(
        "A training of {:.1f} epochs takes {:.3g} h and costs {:.3g} node-h; for {} of them we ask "
        "for {:.3g} node-h, to which validation, checkpoints and start-up are to be added.",
        *size.epochs, *size.training_hours, *size.training_node_hours, trainings,
        static_cast<double>(trainings) * *size.training_node_hours);
  return text;
}

std::vector<Band> bands(const Forecasts& all, Interval Forecast::*value) {
  std::vector<Band> list;
  for (const Forecast& size : all.sizes)
    list.push_back({static_cast<double>(size.ranks), size.*value});
  return list;
}

/// The measured points of the same series as the forecasts, or all when it has none.
Chart with_points(Chart chart, const Analysis& analysis, bool efficiency) {
  const Forecasts& all = *analysis.forecasts;
  for (const Judged& one : analysis.fit->points) {
    const double rows = all.strong ? static_cast<double>(one.point.batch) : one.point.rows();
    if (std::abs(rows - static_cast<double>(all.rows)) > 0.5) continue;
    const double y = efficiency ? one.point.rate() / all.base.rate() : one.point.images_per_s();
    (one.outlier ? chart.outliers : chart.measured)
        .push_back({static_cast<double>(one.point.ranks), y});
  }
  return chart;
}

}  // namespace

std::vector<Block> proposal_section(const Analysis& analysis, const AnalysisSpec& spec) {
  if (!analysis.forecasts || analysis.rehearsal || !analysis.forecasts->recommendation.size)
    return {};
  return {
      Heading{"For the proposal"},
      Paragraph{how_measured(analysis) +
                what_is_asked(analysis, *analysis.forecasts->recommendation.size, spec.trainings)}};
}

std::vector<Block> figures_section(const Analysis& analysis) {
  if (!analysis.forecasts || analysis.forecasts->sizes.size() < 2) return {};
  const Forecasts& all = *analysis.forecasts;
  const std::string series =
      all.strong ? fmt::format("batch {}", all.rows) : fmt::format("{} rows a rank", all.rows);
  Chart rate{.title = "images/s over ranks", .y_name = "images/s, logarithmic", .log_y = true};
  rate.curve = bands(all, &Forecast::images_per_s);
  rate.dashed_name = "ideal";
  for (const Forecast& size : all.sizes)
    rate.dashed.push_back(
        {static_cast<double>(size.ranks), static_cast<double>(size.ranks) * all.base.rate()});
  Chart efficiency{.title = "efficiency over ranks", .y_name = "efficiency"};
  efficiency.curve = bands(all, &Forecast::efficiency);
  Bars bars{.title = "time of a step over ranks"};
  const std::size_t every = (all.sizes.size() + 7) / 8;
  for (std::size_t i = 0; i < all.sizes.size(); i += every) {
    bars.ranks.push_back(static_cast<double>(all.sizes[i].ranks));
    bars.splits.push_back(all.sizes[i].split);
  }
  const std::string interval = fmt::format("{:.0f} %", 100 * analysis.fit->confidence);
  return {Heading{"In pictures"},
          Figure{"rate", chart_svg(with_points(std::move(rate), analysis, false)),
                 fmt::format("Images/s, {}: the law with its {} interval, and what was measured. "
                             "Base rate: {}.",
                             series, interval, all.base.text())},
          Figure{"efficiency", chart_svg(with_points(std::move(efficiency), analysis, true)),
                 fmt::format("Efficiency, {}, relative to the base rate of {}.", series,
                             all.base.text())},
          Figure{"time", bars_svg(bars),
                 fmt::format("Where the time of a step goes, {}; ms a step above the bars. Rows: "
                             "computing them; fixed: for each step; exposed: communication that "
                             "is not hidden; jitter: waiting for the slowest rank.",
                             series)}};
}

}  // namespace lockstep::study
