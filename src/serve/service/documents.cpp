#include "serve/service/documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/backend/answers.hpp"
#include "lockstep/base/build_id.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/prometheus_page.hpp"
#include "serve/service/infer.hpp"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string line(const Json& json) { return json_text(json) + "\n"; }

Json in_ns(const Spent& tally) {
  return {{"count", tally.count}, {"ns", static_cast<std::uint64_t>(tally.seconds * 1e9)}};
}

Json statistics_of(const Version& version, const ModelFigures& figures) {
  Json batches = Json::array();
  for (const auto& [rows, tally] : figures.batches)
    batches.push_back({{"batch_size", rows}, {"compute_infer", in_ns(tally)}});
  Json members = Json::array();
  for (const infer::MemberFigures& member : figures.members)
    members.push_back({{"name", member.name},
                       {"inference_count", member.rows},
                       {"compute_infer", in_ns({member.runs, member.seconds})}});
  return {{"name", version.name()},
          {"version", version.number()},
          {"last_inference", static_cast<std::uint64_t>(figures.last_s * 1e3)},
          {"inference_count", figures.rows},
          {"execution_count", figures.compute.count},
          {"inference_stats",
           {{"success", in_ns(figures.success)},
            {"fail", in_ns(figures.fail)},
            {"queue", in_ns(figures.queue)},
            {"compute_input", in_ns(figures.input)},
            {"compute_infer", in_ns(figures.infer)},
            {"compute_output", in_ns(figures.output)},
            {"cache_hit", in_ns({})},
            {"cache_miss", in_ns({})}}},
          {"batch_stats", batches},
          {"member_stats", members}};
}

}  // namespace

std::string error_document(const std::string& sentence) { return line({{"error", sentence}}); }

std::string live_document(bool ready) { return line({{"live", true}, {"ready", ready}}); }

std::string server_document() {
  return line({{"name", "lockstep"},
               {"version", build_id()},
               {"extensions",
                {"binary_tensor_data", "classification", "model_configuration", "model_repository",
                 "statistics"}}});
}

std::string model_document(const Version& version) {
  const data::DataSetInfo& input = version.input();
  const auto output = [&](const char* name) {
    return Json{{"name", name}, {"datatype", "FP32"}, {"shape", {-1, version.classes()}}};
  };
  Json inputs = Json::array({{{"name", pixels_input},
                              {"datatype", datatype_of(input.element)},
                              {"shape", {-1, input.height, input.width, input.channels}}}});
  if (version.takes_files())
    inputs.push_back({{"name", files_input}, {"datatype", "BYTES"}, {"shape", {-1, 1}}});
  return line({{"name", version.name()},
               {"versions", {version.number()}},
               {"platform", "lockstep"},
               {"inputs", inputs},
               {"outputs", {output(logits_output), output(backend::name_of_answers(input.task))}}});
}

std::string model_ready_document(const Version& version, bool ready) {
  return line({{"name", version.name()}, {"ready", ready}});
}

std::string config_document(const Version& version, const Batcher& batcher) {
  const data::DataSetInfo& input = version.input();
  const auto output = [&](const char* name) {
    return Json{{"name", name}, {"data_type", "TYPE_FP32"}, {"dims", {version.classes()}}};
  };
  Json inputs = Json::array({{{"name", pixels_input},
                              {"data_type", std::string("TYPE_") + datatype_of(input.element)},
                              {"dims", {input.height, input.width, input.channels}}}});
  if (version.takes_files())
    inputs.push_back(
        {{"name", files_input}, {"data_type", "TYPE_STRING"}, {"dims", {1}}, {"optional", true}});
  const auto longest_wait_us =
      static_cast<std::uint64_t>(batcher.longest_wait_s(*version.lane) * 1e6);
  return line({{"name", version.name()},
               {"platform", "lockstep"},
               {"backend", "lockstep"},
               {"max_batch_size", version.lane->batch},
               {"input", inputs},
               {"output", {output(logits_output), output(backend::name_of_answers(input.task))}},
               {"dynamic_batching", {{"max_queue_delay_microseconds", longest_wait_us}}},
               {"parameters",
                {{"model", {{"string_value", version.text()}}},
                 {"task", {{"string_value", choice_name(input.task)}}},
                 {"names", {{"string_value", json_text(Json(input.classes))}}}}}});
}

std::string index_document(const Repository& repository) {
  Json models = Json::array();
  for (const auto& version : repository.all()) {
    const std::string problem = repository.problem(version->name());
    models.push_back({{"name", version->name()},
                      {"version", version->number()},
                      {"state", "READY"},
                      {"reason", problem.empty() ? "" : "a newer file is not loaded: " + problem}});
  }
  return line(models);
}

std::string statistics_document(const std::vector<std::shared_ptr<const Version>>& versions,
                                const Repository& repository) {
  Json models = Json::array();
  for (const auto& version : versions)
    models.push_back(statistics_of(*version, repository.statistics(version->name())->figures()));
  return line({{"model_stats", models}});
}

namespace {

struct Shown {
  std::string model;
  const Version* version;
  ModelFigures figures;
  std::size_t waiting_rows;
  bool outdated;
};

/// One metric of all models: `value` of each.
template <class Value>
void each(PrometheusPage& page, const std::vector<Shown>& models, const char* name,
          const char* type, const char* help, const Value& value) {
  page.metric(name, type, help);
  for (const Shown& one : models)
    page.sample(static_cast<double>(value(one)), {{"model", one.model}});
}

void show_durations(PrometheusPage& page, const std::vector<Shown>& models) {
  page.metric("serve_request_seconds", "histogram",
              "From the arrival of requests that were answered to their answer.");
  for (const auto& [model, version, figures, waiting, outdated] : models) {
    for (std::size_t k = 0; k < figures.bounds_s.size(); ++k)
      page.sample(static_cast<double>(figures.within[k]),
                  {{"model", model}, {"le", fmt::format("{}", figures.bounds_s[k])}}, "_bucket");
    const auto count = static_cast<double>(figures.success.count);
    page.sample(count, {{"model", model}, {"le", "+Inf"}}, "_bucket");
    page.sample(figures.success.seconds, {{"model", model}}, "_sum");
    page.sample(count, {{"model", model}}, "_count");
  }
}

/// One metric of each network of models that have several.
template <class Value>
void each_member(PrometheusPage& page, const std::vector<Shown>& models, const char* name,
                 const char* help, const Value& value) {
  if (std::ranges::all_of(models, [](const Shown& one) { return one.figures.members.empty(); }))
    return;
  page.metric(name, "counter", help);
  for (const Shown& one : models)
    for (const infer::MemberFigures& member : one.figures.members)
      page.sample(static_cast<double>(value(member)),
                  {{"model", one.model}, {"member", member.name}});
}

}  // namespace

std::string metrics_text(const Repository& repository, const Batcher& batcher, bool ready) {
  std::vector<Shown> models;
  const auto versions = repository.all();
  for (const auto& version : versions)
    models.push_back(
        {version->name(), version.get(), repository.statistics(version->name())->figures(),
         batcher.waiting_rows(*version->lane), !repository.problem(version->name()).empty()});
  PrometheusPage page;
  page.gauge("serve_ready", "Whether requests are taken: 1, or 0 at the end.", ready ? 1 : 0);
  each(page, models, "serve_model_version", "gauge", "The version that answers.",
       [](const Shown& one) { return std::stod(one.version->number()); });
  each(page, models, "serve_model_outdated", "gauge",
       "Whether a newer file of it is there, but cannot be loaded: 1, or 0.",
       [](const Shown& one) { return one.outdated ? 1 : 0; });
  each(page, models, "serve_waiting_rows", "gauge", "Images that wait for a batch.",
       [](const Shown& one) { return one.waiting_rows; });
  each(page, models, "serve_rows_total", "counter", "Images that were computed.",
       [](const Shown& one) { return one.figures.rows; });
  each(page, models, "serve_batches_total", "counter", "Batches that were computed.",
       [](const Shown& one) { return one.figures.compute.count; });
  each(page, models, "serve_compute_seconds_total", "counter", "Time in batches.",
       [](const Shown& one) { return one.figures.compute.seconds; });
  each(page, models, "serve_queue_seconds_total", "counter",
       "Time that successful requests waited.",
       [](const Shown& one) { return one.figures.queue.seconds; });
  each(page, models, "serve_prepare_seconds_total", "counter",
       "Time in reading successful requests and preparing their images.",
       [](const Shown& one) { return one.figures.input.seconds; });
  each(page, models, "serve_failed_requests_total", "counter",
       "Inference requests that got an error.",
       [](const Shown& one) { return one.figures.fail.count; });
  each(page, models, "serve_refused_requests_total", "counter",
       "Of these: because too many images waited.",
       [](const Shown& one) { return one.figures.refused; });
  each_member(page, models, "serve_member_rows_total",
              "Images that a network of a model with several was asked for.",
              [](const infer::MemberFigures& member) { return member.rows; });
  each_member(page, models, "serve_member_seconds_total", "Time in that network.",
              [](const infer::MemberFigures& member) { return member.seconds; });
  show_durations(page, models);
  return std::move(page.text);
}

}  // namespace lockstep::serve
