#include "lockstep/study/report/study_report.hpp"

#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_text.hpp"
#include "study/page/document.hpp"
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

}  // namespace lockstep::study
