#include <algorithm>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/data/shard.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/model.hpp"
#include "lockstep/train/run_directory.hpp"
#include "reading.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

/// What JPEGs have in place of one size for all.
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

Json shards_as_json(const std::filesystem::path& path, const data::ForeignSpec& foreign) {
  const data::DataSet rows(path, foreign);
  const data::DataSetInfo& info = rows.info();
  std::vector<std::uint64_t> per_class(info.classes.size());
  for (const std::int32_t label : rows.labels()) ++per_class[static_cast<std::size_t>(label)];
  Json classes = Json::array(), files = Json::array();
  for (std::size_t c = 0; c < info.classes.size(); ++c)
    classes.push_back({{"name", info.classes[c]}, {"rows", per_class[c]}});
  for (const auto& file : rows.files()) files.push_back(file.string());
  const bool jpeg = info.encoding == data::Encoding::jpeg;
  const bool one = files.size() == 1 && files[0] == path.string();
  const bool shard = rows.storage().checksums;
  return {{"kind", !one    ? "data set"
                   : shard ? "shard"
                           : "file"},
          {"path", path.string()},
          {"files", std::move(files)},
          {"rows", info.rows},
          {"encoding", jpeg ? "jpeg" : "raw"},
          {"bytes", stored_bytes(rows)},
          {"height", jpeg ? Json(nullptr) : Json(info.height)},
          {"width", jpeg ? Json(nullptr) : Json(info.width)},
          {"jpegs", jpeg ? jpegs_as_json(rows) : Json(nullptr)},
          {"channels", info.channels},
          {"mean", info.mean},
          {"stddev", info.stddev},
          {"reading", reading_as_json(rows)},
          {"classes", std::move(classes)}};
}

Json checkpoint_as_json(const std::filesystem::path& path) {
  const train::CheckpointHeader header = train::read_header(path);
  Json tensors = Json::array();
  std::size_t numbers = 0;
  for (const train::TensorEntry& tensor : train::list_tensors(path)) {
    std::size_t count = 1;
    for (const std::size_t extent : tensor.shape) count *= extent;
    if (tensor.name.starts_with("weights/")) numbers += count;
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"crc32c", fmt::format("{:08x}", tensor.crc32c)}});
  }
  const train::Progress& at = header.progress;
  Json best = nullptr;
  if (at.best_top1 >= 0) best = {{"top1", at.best_top1}, {"epoch", at.best_epoch}};
  return {{"kind", "checkpoint"},
          {"path", path.string()},
          {"bytes", std::filesystem::file_size(path)},
          {"step", at.step},
          {"epochs_done", at.epoch},
          {"steps_in_epoch", at.batch},
          {"best", best},
          {"input", {header.input.height, header.input.width, header.input.channels}},
          {"classes", header.input.classes},
          {"world", header.world},
          {"backend", header.backend},
          {"build", header.build},
          {"numbers", numbers},
          {"tensors", std::move(tensors)},
          {"config", header.config}};
}

Json run_as_json(const train::RunDirectory& run) {
  std::uint64_t steps = 0;
  Json epochs = Json::array();
  std::istringstream lines(read_text(run.metrics()));
  for (std::string line; std::getline(lines, line);) {
    // A run that is under way, or was killed, may end in half a line.
    const Json record = Json::parse(line, nullptr, false);
    if (record.is_discarded()) break;
    if (record.contains("step")) steps = record["step"];
    if (record.contains("last_step")) epochs.push_back(record);
  }
  Json checkpoints = Json::array();
  for (const auto& path : train::CheckpointDirectory(run.checkpoints(), 1).newest_first())
    checkpoints.push_back(path.filename().string());
  Json summary = nullptr;
  if (std::filesystem::exists(run.summary())) {
    summary = Json::parse(read_text(run.summary()), nullptr, false);
    require(!summary.is_discarded(), fmt::format("{}: is not JSON", run.summary().string()));
  }
  return {{"kind", "run"},
          {"path", run.root().string()},
          {"finished", !summary.is_null()},
          {"steps", steps},
          {"epochs", std::move(epochs)},
          {"checkpoints", std::move(checkpoints)},
          {"summary", std::move(summary)},
          {"config", read_text(run.config())}};
}

Json describe(const std::filesystem::path& path, const data::ForeignSpec& foreign) {
  const bool pattern = path.string().find_first_of("*?[") != std::string::npos;
  require(pattern || std::filesystem::exists(path),
          fmt::format("{}: no such file or folder", path.string()));
  const train::RunDirectory run(path);
  if (std::filesystem::is_directory(path) && std::filesystem::exists(run.config()))
    return run_as_json(run);
  if (std::filesystem::is_regular_file(path) && train::looks_like_checkpoint(path))
    return checkpoint_as_json(path);
  return shards_as_json(path, foreign);
}

std::string percent(const Json& share) {
  return fmt::format("{:.2f} %", 100 * share.get<double>());
}

std::string numbers(const Json& list) {
  std::vector<std::string> texts;
  for (const double value : list) texts.push_back(fmt::format("{:.4f}", value));
  return fmt::format("{}", fmt::join(texts, " "));
}

std::string form_as_text(const Json& set) {
  const Json& jpegs = set["jpegs"];
  if (jpegs.is_null())
    return fmt::format("{} x {} pixels", set["height"].dump(), set["width"].dump());
  return fmt::format("JPEG, {} to {} x {} to {} pixels, {} each on average",
                     jpegs["smallest_height"].dump(), jpegs["largest_height"].dump(),
                     jpegs["smallest_width"].dump(), jpegs["largest_width"].dump(),
                     human_bytes(set["bytes"].get<double>() / set["rows"].get<double>()));
}

std::string shards_as_text(const Json& set) {
  std::string text = fmt::format("{} {}: {} rows of {}, {} channels, in {} file(s)\n",
                                 set["kind"].get<std::string>(), set["path"].get<std::string>(),
                                 set["rows"].dump(), form_as_text(set), set["channels"].dump(),
                                 set["files"].size());
  text += fmt::format("mean {}, deviation {}\n", numbers(set["mean"]), numbers(set["stddev"]));
  text += reading_as_text(set["reading"]);
  text += fmt::format("{} classes:", set["classes"].size());
  for (const Json& one : set["classes"])
    text += fmt::format("\n  {:>8}  {}", one["rows"].dump(), one["name"].get<std::string>());
  return text;
}

std::string checkpoint_as_text(const Json& checkpoint) {
  std::string text = fmt::format(
      "checkpoint {}: valid, {}\nstep {}, {} epoch(s) done and {} step(s) of the next; ",
      checkpoint["path"].get<std::string>(), human_bytes(checkpoint["bytes"]),
      checkpoint["step"].dump(), checkpoint["epochs_done"].dump(),
      checkpoint["steps_in_epoch"].dump());
  text += checkpoint["best"].is_null() ? std::string("not validated yet")
                                       : fmt::format("best validation top-1 {} in epoch {}",
                                                     percent(checkpoint["best"]["top1"]),
                                                     checkpoint["best"]["epoch"].dump());
  const Json& input = checkpoint["input"];
  text += fmt::format(
      "\n{} tensors, weights and statistics of {} numbers; input {} x {} x {}; {} classes\n",
      checkpoint["tensors"].size(), checkpoint["numbers"].dump(), input[0].dump(), input[1].dump(),
      input[2].dump(), checkpoint["classes"].size());
  text +=
      fmt::format("written by {} rank(s) on {}, by build {}\n\n{}", checkpoint["world"].dump(),
                  checkpoint["backend"].get<std::string>(), checkpoint["build"].get<std::string>(),
                  checkpoint["config"].get<std::string>());
  return text;
}

std::string run_as_text(const Json& run) {
  std::string text =
      fmt::format("run {}: {}, {} steps\n", run["path"].get<std::string>(),
                  run["finished"] ? "finished" : "not finished", run["steps"].dump());
  for (const Json& epoch : run["epochs"]) {
    text += fmt::format("  epoch {}: loss {:.4f}, top-1 {}", epoch["epoch"].dump(),
                        epoch["train_loss"].get<double>(), percent(epoch["train_top1"]));
    if (epoch.contains("val_top1"))
      text += fmt::format("; validation loss {:.4f}, top-1 {}", epoch["val_loss"].get<double>(),
                          percent(epoch["val_top1"]));
    text += '\n';
  }
  text += "checkpoints:";
  for (const Json& name : run["checkpoints"]) text += ' ' + name.get<std::string>();
  return text + "\n\n" + run["config"].get<std::string>();
}

std::string as_text(const Json& found) {
  if (found["kind"] == "checkpoint") return checkpoint_as_text(found);
  if (found["kind"] == "run") return run_as_text(found);
  return shards_as_text(found);
}

}  // namespace

Command add_info(CLI::App& root) {
  struct Options {
    std::string path;
    bool json = false;
    train::Config config;
  };
  auto options = std::make_shared<Options>();
  CLI::App* app = root.add_subcommand(
      "info",
      "Describe a data set (and how fast its files can be read), a checkpoint or a run's "
      "directory");
  app->add_option("path", options->path, "file, folder or pattern of files")->required();
  for (const train::ConfigKey& key : train::config_keys()) {
    if (!key.help.starts_with("files that are no shards") && key.name != "data.labels") continue;
    app->add_option_function<std::string>(
           "--" + key.name,
           [options, name = key.name](const std::string& value) {
             train::set_key(options->config, name, value);
           },
           key.help)
        ->type_name("VALUE");
  }
  app->add_flag("--json", options->json, "print JSON");
  return {app, [options](Launch&) {
            const Json found = describe(options->path, train::foreign_spec(options->config));
            std::string text = options->json
                                   ? found.dump(2, ' ', false, Json::error_handler_t::replace)
                                   : as_text(found);
            while (text.ends_with('\n')) text.pop_back();
            log::info(text);
            return 0;
          }};
}

}  // namespace lockstep::app
