#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/info/info_text.hpp"
#include "lockstep/backend/pace.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/model/model.hpp"
#include "lockstep/observe/summary.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

/// For JPEGs: the range of sizes, because they have no common one.
Json jpegs_as_json(const data::DataSet& rows) {
  std::array<std::size_t, 2> smallest = rows.size(0), largest = smallest;
  for (std::size_t row = 0; row < rows.info().rows; ++row)
    for (std::size_t side = 0; side < 2; ++side) {
      smallest[side] = std::min(smallest[side], rows.size(row)[side]);
      largest[side] = std::max(largest[side], rows.size(row)[side]);
    }
  return {{"smallest_height", smallest[0]},
          {"largest_height", largest[0]},
          {"smallest_width", smallest[1]},
          {"largest_width", largest[1]}};
}

std::uint64_t stored_bytes(const data::DataSet& rows) {
  std::uint64_t bytes = 0;
  for (std::size_t row = 0; row < rows.info().rows; ++row) bytes += rows.row_bytes(row);
  return bytes;
}

Json shards_as_json(const std::filesystem::path& path, const data::ExternalSpec& external) {
  const data::DataSet rows(path, external);
  const std::string setting = data::first_setting(external);
  require(rows.external() || setting.empty(),
          fmt::format("{} would have no effect: {} holds shards", setting, path.string()));
  std::optional<data::DataSet> uncached;  // opening has filled the cache of the first one
  if (!rows.storage().contiguous) {
    data::ExternalSpec spec = external;
    spec.cache_bytes = 1;
    uncached.emplace(path, spec);
  }
  const data::DataSetInfo& info = rows.info();
  std::vector<std::uint64_t> per_class(info.classes.size());
  if (info.task == data::Task::classes)
    for (const std::int32_t label : rows.labels()) ++per_class[static_cast<std::size_t>(label)];
  for (std::size_t k = 0; k < info.wanted_values(); ++k)
    for (std::size_t row = 0; row < info.rows; ++row) {
      const float wanted = rows.wanted(row, k);
      per_class[k] += info.task == data::Task::labels ? wanted == 1 : !std::isnan(wanted);
    }
  Json classes = Json::array(), files = Json::array();
  for (std::size_t c = 0; c < info.classes.size(); ++c)
    classes.push_back({{"name", info.classes[c]}, {"rows", per_class[c]}});
  for (const auto& file : rows.files()) files.push_back(file.string());
  for (const std::string& doubt : rows.doubts()) log::warn(doubt);
  const bool jpeg = info.encoding == data::Encoding::jpeg;
  const bool one = files.size() == 1 && files[0] == path.string();
  const bool shard = rows.storage().checksums;
  return {{"kind", !one    ? "data set"
                   : shard ? "shard"
                           : "file"},
          {"path", path.string()},
          {"files", std::move(files)},
          {"sets", rows.external() ? Json(rows.say_sets()) : Json(nullptr)},
          {"rows", info.rows},
          {"encoding", jpeg ? "jpeg" : "raw"},
          {"bytes", stored_bytes(rows)},
          {"height", jpeg ? Json(nullptr) : Json(info.height)},
          {"width", jpeg ? Json(nullptr) : Json(info.width)},
          {"jpegs", jpeg ? jpegs_as_json(rows) : Json(nullptr)},
          {"channels", info.channels},
          {"element", choice_name(info.element)},
          {"channel_names", info.channel_names},
          {"no_data", rows.say_share_of_no_data()},
          {"shaping", data::say_shaping(info.shaping)},
          {"mean", info.mean},
          {"stddev", info.stddev},
          {"task", choice_name(info.task)},
          {"target_mean", info.target_mean},
          {"target_stddev", info.target_stddev},
          {"reading", reading_as_json(rows, uncached ? *uncached : rows)},
          {"classes", std::move(classes)}};
}

Json checkpoint_as_json(const std::filesystem::path& path) {
  const model::CheckpointHeader header = model::read_header(path);
  const model::Description about = backend::is_rehearsal(header.backend)
                                       ? model::describe(path, infer::describe_by_config)
                                       : model::load(path, infer::describe_by_config).about;
  const data::DataSetInfo& input = about.input;
  Json tensors = Json::array();
  std::size_t numbers = 0;
  for (const model::TensorEntry& tensor : model::list_tensors(path)) {
    std::size_t count = 1;
    for (const std::size_t extent : tensor.shape) count *= extent;
    if (tensor.name.starts_with("weights/")) numbers += count;
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"crc32c", fmt::format("{:08x}", tensor.crc32c)}});
  }
  const model::Progress& at = header.progress;
  Json best = nullptr;
  if (at.best_epoch > 0)
    best = {{at.score.empty() ? "top1" : at.score, at.best_score}, {"epoch", at.best_epoch}};
  return {{"kind", "checkpoint"},
          {"path", path.string()},
          {"bytes", std::filesystem::file_size(path)},
          {"step", at.step},
          {"epochs_done", at.epoch},
          {"steps_in_epoch", at.batch},
          {"best", best},
          {"format", header.format},
          {"network", about.network.name},
          {"nodes", about.network.nodes.size()},
          {"input", {input.height, input.width, input.channels}},
          {"shaping", data::say_shaping(input.shaping)},
          {"mean", input.mean},
          {"stddev", input.stddev},
          {"task", choice_name(input.task)},
          {"target_mean", input.target_mean},
          {"target_stddev", input.target_stddev},
          {"fit", choice_name(about.preparation.fit)},
          {"short_side", about.preparation.short_side},
          {"classes", input.classes},
          {"world", header.world},
          {"backend", header.backend},
          {"build", header.build},
          {"exchange", header.exchange},
          {"numbers", numbers},
          {"tensors", std::move(tensors)},
          {"config", header.config}};
}

Json weights_as_json(const std::filesystem::path& path) {
  const model::ModelOfFile found = model::read_weights(path);
  const model::Description& about = found.model.about;
  Json tensors = Json::array();
  for (const model::Weight* weight : model::in_forward_order(found.model)) {
    const std::vector<float>& values = weight->values;
    tensors.push_back(
        {{"name", weight->tensor.name},
         {"shape", weight->tensor.shape},
         {"crc32c", fmt::format("{:08x}", crc32c(values.data(), values.size() * sizeof(float)))}});
  }
  return {{"kind", "weights"},
          {"path", path.string()},
          {"bytes", std::filesystem::file_size(path)},
          {"format", found.format},
          {"network", about.network.name},
          {"nodes", about.network.nodes.size()},
          {"input", {about.input.height, about.input.width, about.input.channels}},
          {"shaping", data::say_shaping(about.input.shaping)},
          {"mean", about.input.mean},
          {"stddev", about.input.stddev},
          {"fit", choice_name(about.preparation.fit)},
          {"short_side", about.preparation.short_side},
          {"outputs", about.network.classes},
          {"classes", about.input.classes},
          {"steps", found.model.steps},
          {"numbers", nn::numbers(about.network)},
          {"tensors", std::move(tensors)}};
}

template <class Records>
Json as_list(const Records& records) {
  Json list = Json::array();
  for (const auto& record : records) list.push_back(Json::parse(observe::to_json(record)));
  return list;
}

/// What is damaged is said; the other files still tell their part.
void or_warn(const std::filesystem::path& file, const std::function<void()>& read) {
  if (!std::filesystem::exists(file)) return;
  try {
    read();
  } catch (const InputError& error) {
    log::warn(error.what());
  }
}

Json run_as_json(const train::RunDirectory& run) {
  const observe::Course course = observe::read_course(run.metrics());
  if (course.strange.count > 0) log::warn(describe(course.strange, run.metrics()));
  Json checkpoints = Json::array();
  for (const auto& path : model::CheckpointDirectory(run.checkpoints(), 1).newest_first())
    checkpoints.push_back(path.filename().string());
  const auto best = model::CheckpointDirectory(run.checkpoints(), 1).best();
  if (std::filesystem::exists(best)) checkpoints.push_back(best.filename().string());
  std::optional<observe::Summary> summary;
  or_warn(run.summary(), [&] {
    const observe::Summary read = observe::read_summary(run.summary());
    require(course.starts.empty() || read.start.time_ms == 0 ||
                read.start.time_ms == course.starts.back().time_ms,
            run.summary().string() +
                " is of another start than the newest in metrics.jsonl: it is left out");
    summary = read;
  });
  Json config = nullptr;
  or_warn(run.config(), [&] { config = read_text(run.config()); });
  if (!std::filesystem::exists(run.config()))
    log::warn(fmt::format("{} is missing", run.config().string()));
  return {
      {"kind", "run"},
      {"path", run.root().string()},
      {"finished", summary ? summary->finished() : course.end && course.end->status == "finished"},
      {"steps", course.starts.empty() && summary ? summary->steps : course.steps},
      {"starts", as_list(course.starts)},
      {"epochs", as_list(course.epochs)},
      {"resumes", as_list(course.resumes)},
      {"end", course.end ? Json::parse(observe::to_json(*course.end)) : Json(nullptr)},
      {"checkpoints", std::move(checkpoints)},
      {"summary", summary ? Json::parse(observe::to_json(*summary)) : Json(nullptr)},
      {"config", std::move(config)}};
}

/// The two sets that pack wrote into one folder.
Json packed_as_json(const std::string& path, const data::ExternalSpec& external) {
  const std::string validation = train::packed_set(path, train::PackedPart::validation);
  return {{"kind", "packed"},
          {"path", path},
          {"train", shards_as_json(train::packed_set(path, train::PackedPart::training), external)},
          {"val", validation == path ? Json(nullptr) : shards_as_json(validation, external)}};
}

Json describe(const std::filesystem::path& path, const data::ExternalSpec& external) {
  const bool pattern = path.string().find_first_of("*?[") != std::string::npos;
  require(pattern || std::filesystem::exists(path),
          fmt::format("{}: no such file or folder", path.string()));
  const train::RunDirectory run(path);
  if (std::filesystem::is_directory(path) &&
      (std::filesystem::exists(run.config()) || std::filesystem::exists(run.metrics()) ||
       std::filesystem::is_directory(run.checkpoints())))
    return run_as_json(run);
  if (std::filesystem::is_regular_file(path) && model::looks_like_checkpoint(path))
    return checkpoint_as_json(path);
  if (std::filesystem::is_regular_file(path) && model::is_weights_file(path))
    return weights_as_json(path);
  if (train::packed_set(path, train::PackedPart::training) != path)
    return packed_as_json(path.string(), external);
  return shards_as_json(path, external);
}

}  // namespace

Command add_info(Arguments root) {
  struct Options {
    std::string path;
    bool json = false;
    config::Config config;
  };
  auto options = std::make_shared<Options>();
  Arguments app = root.add_command(
      "info",
      "Describe a data set (and how fast its files can be read), a checkpoint, another program's "
      "weights (.safetensors, .pth, .npz, .onnx) or a run's directory");
  app.add("path", options->path, "file, folder or pattern of files").required();
  for (const config::ConfigKey& key : config::config_keys())
    if (key.for_external || key.name == "data.clip" || key.name == "data.curve")
      add_key(app, key, options->config);
  app.add_flag("--json", options->json, "print JSON");
  return {app,
          [options](Launch& launch) {
            if (launch.leave_to_rank_0()) return 0;
            const Json found = describe(options->path, train::external_spec(options->config));
            std::string text = options->json ? json_text(found, 2) : info_as_text(found);
            while (text.ends_with('\n')) text.pop_back();
            log::text(text);
            return 0;
          },
          [options](const Supposed& supposed) {
            if (supposed.whole && supposed.shows(options->path))
              describe(options->path, train::external_spec(options->config));
          }};
}

}  // namespace lockstep::app
