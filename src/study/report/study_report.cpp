#include "lockstep/study/report/study_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "study/page/document.hpp"
#include "study/page/plot.hpp"
#include "study/report/sections.hpp"

namespace lockstep::study {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Interval& interval) {
  return {{"low", interval.low}, {"value", interval.middle}, {"high", interval.high}};
}

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json points_json(const Analysis& analysis) {
  Json list = Json::array();
  for (const Point& point : analysis.points)
    list.push_back({{"ranks", point.ranks},
                    {"nodes", point.nodes},
                    {"batch", point.batch},
                    {"runs", point.times_ms.size()},
                    {"step_ms", point.step_ms},
                    {"images_per_s", point.images_per_s()}});
  return list;
}

Json law_json(const Analysis& analysis) {
  const Fit& fit = *analysis.fit;
  Json json = {{"c_ms", to_json(interval_of(fit, &Law::c_ms))},
               {"a_ms", to_json(interval_of(fit, &Law::a_ms))},
               {"alpha_ms", to_json(interval_of(fit, &Law::alpha_ms))},
               {"wire_ms", to_json(interval_of(fit, &Law::wire_ms))},
               {"buckets", fit.law.buckets},
               {"backward", fit.law.backward},
               {"jitter", fit.law.jitter},
               {"scatter", fit.scatter},
               {"confidence", fit.confidence},
               {"outliers", Json::array()},
               {"left_out", Json::array()}};
  for (const Judged& one : fit.points)
    if (one.outlier)
      json["outliers"].push_back({{"ranks", one.point.ranks},
                                  {"batch", one.point.batch},
                                  {"names", one.point.names},
                                  {"deviation", one.deviation()}});
  for (const LeftOut& one : analysis.left_out)
    json["left_out"].push_back({{"ranks", one.point.ranks},
                                {"batch", one.point.batch},
                                {"step_ms", to_json(one.step_ms)},
                                {"error", one.error()}});
  return json;
}

Json forecasts_json(const Forecasts& all) {
  Json json = {{"base",
                {{"ranks", all.base.ranks},
                 {"batch", all.base.batch},
                 {"images_per_s", all.base.images_per_s}}},
               {"sizes", Json::array()},
               {"recommended", Json()},
               {"why", all.recommendation.why}};
  for (const Forecast& size : all.sizes)
    json["sizes"].push_back({{"ranks", size.ranks},
                             {"nodes", size.nodes},
                             {"batch", size.batch},
                             {"step_ms", to_json(size.step_ms)},
                             {"images_per_s", to_json(size.images_per_s)},
                             {"efficiency", to_json(size.efficiency)},
                             {"compute_ms", size.split.compute},
                             {"fixed_ms", size.split.fixed},
                             {"exposed_ms", size.split.exposed},
                             {"jitter_ms", size.split.jitter},
                             {"epoch_node_hours", optional_json(size.epoch_node_hours)},
                             {"epochs", optional_json(size.epochs)},
                             {"training_hours", optional_json(size.training_hours)},
                             {"training_node_hours", optional_json(size.training_node_hours)},
                             {"caution", size.caution}});
  if (all.recommendation.size) json["recommended"] = all.recommendation.size->ranks;
  return json;
}

}  // namespace

std::string fit_text(const Analysis& analysis) {
  Document document{"Scaling of " + subject(analysis), {}};
  document.add(rehearsal_section(analysis));
  document.add(measured_section(analysis));
  document.add(law_section(analysis));
  return as_text(document);
}

std::string forecast_text(const Analysis& analysis) {
  Document document{"Scaling of " + subject(analysis), {}};
  document.add(rehearsal_section(analysis));
  if (!analysis.fit) document.add(law_section(analysis));
  document.add(forecast_section(analysis));
  return as_text(document);
}

std::string analysis_json(const Analysis& analysis) {
  Json json = {{"rehearsal", analysis.rehearsal}, {"network", analysis.network},
               {"precision", analysis.precision}, {"machine", analysis.machine},
               {"points", points_json(analysis)}, {"not_used", Json::array()}};
  for (const Rejected& one : analysis.rejected)
    json["not_used"].push_back({{"name", one.name}, {"reason", one.reason}});
  if (analysis.fit) {
    json["law"] = law_json(analysis);
    json["summaries"] = analysis.summaries;
  } else {
    json["why_no_fit"] = analysis.why_no_fit;
  }
  if (analysis.forecasts) json["forecasts"] = forecasts_json(*analysis.forecasts);
  return json_text(json, 2);
}

Report make_report(const Analysis& analysis, const AnalysisSpec& spec) {
  Document document{"Scaling study: " + subject(analysis), {}};
  document.add(rehearsal_section(analysis));
  document.add(figures_section(analysis));
  document.add(cost_section(analysis, spec));
  document.add(proposal_section(analysis, spec));
  document.add(measured_section(analysis));
  document.add(law_section(analysis));
  document.add(forecast_section(analysis));
  Report report{as_markdown(document), as_latex(document), as_html(document), {}};
  for (const Block& block : document.blocks)
    if (const auto* figure = std::get_if<Figure>(&block))
      report.figures.emplace_back(figure->name, figure->svg);
  return report;
}

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
      "{:.3g} ms, and scatters around this law by {:.1f} %. ",
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

/// Values over numbers of ranks: the law with its interval, and the measured points of the same
/// series as the forecasts, or all when it has none.
Plot plot_of(const Analysis& analysis, Interval Forecast::*value) {
  const Forecasts& all = *analysis.forecasts;
  const bool efficiency = value == &Forecast::efficiency;
  Plot plot{.title = efficiency ? "efficiency over ranks" : "images/s over ranks",
            .y_name = efficiency ? "efficiency" : "images/s, logarithmic",
            .x_name = "ranks",
            .share = efficiency,
            .most_share = 1.5,
            .log_y = !efficiency};
  PlotCurve law{.name = "the law", .filled = true},
      ideal{.name = "ideal", .colour = 5, .dashed = true};
  PlotCurve measured{.name = "measured", .colour = 1}, outliers{.name = "outliers", .colour = 2};
  const std::size_t every = (all.sizes.size() + 7) / 8;
  for (const Forecast& size : all.sizes) {
    const double ranks = static_cast<double>(size.ranks);
    law.line.push_back({ranks, (size.*value).middle});
    law.around.push_back({ranks, (size.*value).high});
    ideal.line.push_back({ranks, ranks * all.base.rate()});
    if ((law.line.size() - 1) % every == 0) plot.x_ticks.push_back(ranks);
  }
  for (auto size = all.sizes.rbegin(); size != all.sizes.rend(); ++size)
    law.around.push_back({static_cast<double>(size->ranks), ((*size).*value).low});
  for (const Judged& one : analysis.fit->points) {
    const double rows = all.strong ? static_cast<double>(one.point.batch) : one.point.rows();
    if (std::abs(rows - static_cast<double>(all.rows)) > 0.5) continue;
    const double y = efficiency ? one.point.rate() / all.base.rate() : one.point.images_per_s();
    (one.outlier ? outliers : measured).spots.push_back({static_cast<double>(one.point.ranks), y});
  }
  plot.curves = {law};
  if (!efficiency) plot.curves.push_back(ideal);
  for (const PlotCurve* one : {&measured, &outliers})
    if (!one->spots.empty()) plot.curves.push_back(*one);
  return plot;
}

/// The parts of a step, in the order of a bar from its foot.
struct BarPart {
  const char* name;
  double TimeShares::*ms;
};
constexpr BarPart parts[] = {
    {"rows", &TimeShares::compute},
    {"fixed", &TimeShares::fixed},
    {"exposed", &TimeShares::exposed},
    {"jitter", &TimeShares::jitter},
};

/// One bar for each number of ranks: shares of a step, its time above.
std::string bars_svg(const std::string& title, const std::vector<Forecast>& sizes) {
  std::string svg = open_svg(title);
  const double each = (picture_width - left - right) / static_cast<double>(sizes.size());
  const double height = picture_height - top - bottom - 14;
  for (const double share : {0.0, 0.5, 1.0}) {
    const double y = picture_height - bottom - share * height;
    svg += line_at(left, y, picture_width - right, y);
    svg += text_at(left - 8, y + 5, fmt::format("{:g} %", 100 * share), "end");
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double x = left + (static_cast<double>(i) + 0.5) * each;
    double y = picture_height - bottom;
    for (std::size_t k = 0; k < std::size(parts); ++k) {
      const BarPart& part = parts[k];
      const double share = sizes[i].split.*part.ms / sizes[i].split.total();
      y -= share * height;
      svg += box_at({x - 0.35 * each, y}, {0.7 * each, share * height}, colour_of(k),
                    fmt::format("{}: {:.3g} ms", part.name, sizes[i].split.*part.ms));
    }
    const double total_ms = sizes[i].split.total();
    svg += text_at(x, y - 5,
                   fmt::format("{:.{}f}", total_ms,
                               total_ms < 10    ? 2
                               : total_ms < 100 ? 1
                                                : 0));
    svg += text_at(x, picture_height - bottom + 20, fmt::format("{}", sizes[i].ranks));
  }
  double x = left;
  for (std::size_t k = 0; k < std::size(parts); ++k) {
    svg += box_at({x, 9}, {12, 12}, colour_of(k));
    svg += text_at(x + 17, 20, parts[k].name, "start", ink);
    x += 104;
  }
  svg += text_at((left + picture_width - right) / 2, picture_height - 6, "ranks");
  return svg + "</svg>\n";
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
  std::vector<Forecast> some;
  const std::size_t every = (all.sizes.size() + 7) / 8;
  for (std::size_t i = 0; i < all.sizes.size(); i += every) some.push_back(all.sizes[i]);
  const std::string interval = fmt::format("{:.0f} %", 100 * analysis.fit->confidence);
  return {Heading{"In pictures"},
          Figure{"rate", plot_svg(plot_of(analysis, &Forecast::images_per_s)),
                 fmt::format("Images/s, {}: the law with its {} interval, and what was measured. "
                             "Base rate: {}.",
                             series, interval, all.base.text())},
          Figure{"efficiency", plot_svg(plot_of(analysis, &Forecast::efficiency)),
                 fmt::format("Efficiency, {}, relative to the base rate of {}.", series,
                             all.base.text())},
          Figure{"time", bars_svg("time of a step over ranks", some),
                 fmt::format("Where the time of a step goes, {}; ms a step above the bars. Rows: "
                             "computing them; fixed: for each step; exposed: communication that "
                             "is not hidden; jitter: waiting for the slowest rank.",
                             series)}};
}

}  // namespace lockstep::study
