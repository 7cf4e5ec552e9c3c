#include "serve/service/documents.hpp"

#include <nlohmann/json.hpp>

#include "lockstep/base/build_id.hpp"
#include "lockstep/base/text/json_text.hpp"
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
  return line({{"name", version.name()},
               {"versions", {version.number()}},
               {"platform", "lockstep"},
               {"inputs",
                {{{"name", pixels_input},
                  {"datatype", "UINT8"},
                  {"shape", {-1, input.height, input.width, input.channels}}},
                 {{"name", files_input}, {"datatype", "BYTES"}, {"shape", {-1, 1}}}}},
               {"outputs", {output(logits_output), output(probabilities_output)}}});
}

std::string model_ready_document(const Version& version, bool ready) {
  return line({{"name", version.name()}, {"ready", ready}});
}

std::string config_document(const Version& version, const Batcher& batcher) {
  const data::DataSetInfo& input = version.input();
  const auto output = [&](const char* name) {
    return Json{{"name", name}, {"data_type", "TYPE_FP32"}, {"dims", {version.classes()}}};
  };
  const auto longest_wait_us =
      static_cast<std::uint64_t>(batcher.longest_wait_s(*version.lane) * 1e6);
  return line(
      {{"name", version.name()},
       {"platform", "lockstep"},
       {"backend", "lockstep"},
       {"max_batch_size", version.lane->batch},
       {"input",
        {{{"name", pixels_input},
          {"data_type", "TYPE_UINT8"},
          {"dims", {input.height, input.width, input.channels}}},
         {{"name", files_input}, {"data_type", "TYPE_STRING"}, {"dims", {1}}, {"optional", true}}}},
       {"output", {output(logits_output), output(probabilities_output)}},
       {"dynamic_batching", {{"max_queue_delay_microseconds", longest_wait_us}}},
       {"parameters", {{"model", {{"string_value", version.text()}}}}}});
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

}  // namespace lockstep::serve
