#include <algorithm>
#include <string>

#include <fmt/core.h>

#include "lockstep/base/text/prometheus_page.hpp"
#include "serve/service/documents.hpp"

namespace lockstep::serve {
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
