#include "app/info/info_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "app/commands.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/report.hpp"
#include "lockstep/study/runs/run_report.hpp"
#include "lockstep/study/why/why.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

/// What the saved configuration gives in addition to the defaults; all of it where this lockstep
/// does not know it.
std::string given_keys(const std::string& toml) {
  try {
    return observe::summarise(config::config_in(toml, "config")) + "\n(--json has all keys)";
  } catch (const InputError&) {
    return toml;
  }
}

/// "10 classes", "3 labels", "2 values".
std::string counted_outputs(const Json& of) {
  return data::say_outputs(of["classes"].size(),
                           *find_choice<data::Task>(of["task"].get<std::string>()));
}

std::string percent(const Json& share) {
  return share.is_null() ? "no number" : fmt::format("{:.2f} %", 100 * share.get<double>());
}

std::string loss(const Json& mean) {
  return mean.is_null() ? "no number" : fmt::format("{:.4f}", mean.get<double>());
}

std::string numbers(const Json& list) {
  std::vector<std::string> texts;
  for (const double value : list) texts.push_back(fmt::format("{:.4f}", value));
  return join(texts, " ");
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

/// A line about what happens to values, or nothing.
std::string shaping_as_text(const Json& of) {
  const std::string shaping = of["shaping"];
  return shaping.empty() ? "" : "values, before mean and deviation: " + shaping + '\n';
}

/// "3 channels", "12 channels of uint16".
std::string channels_as_text(const Json& set) {
  const std::string element = set["element"];
  return counted(set["channels"], "channel") +
         (element == choice_name(data::Element::u8) ? "" : " of " + element);
}

std::string shards_as_text(const Json& set) {
  std::string text =
      fmt::format("{} {}: {} of {}, {}, in {}\n", set["kind"].get<std::string>(),
                  set["path"].get<std::string>(), counted(set["rows"], "row"), form_as_text(set),
                  channels_as_text(set), counted(set["files"].size(), "file"));
  if (!set["sets"].is_null()) text += one_line(set["sets"].get<std::string>()) + '\n';
  const bool bytes =
      set["element"] == choice_name(data::Element::u8) && set["shaping"].get<std::string>().empty();
  const auto listed = [&](const Json& list) {
    return bytes ? numbers(list) : join(list.get<std::vector<float>>(), " ");
  };
  text += fmt::format("mean {}, deviation {}\n", listed(set["mean"]), listed(set["stddev"]));
  if (const Json& names = set["channel_names"]; !names.empty())
    text += "channels " + one_line(join(names.get<std::vector<std::string>>(), ", ")) + '\n';
  text += shaping_as_text(set);
  if (const std::string no_data = set["no_data"]; !no_data.empty()) text += no_data + '\n';
  text += reading_as_text(set["reading"]);
  text += counted_outputs(set) + ":";
  for (const Json& one : set["classes"])
    text +=
        fmt::format("\n  {:>8}  {}", one["rows"].dump(), one_line(one["name"].get<std::string>()));
  return text;
}

/// The score comes first, by its name.
std::string say_best(const Json& best) {
  const bool by_top1 = best.contains("top1");
  return fmt::format("best validation {} {} in epoch {}",
                     by_top1 ? "top-1" : best.items().begin().key(),
                     by_top1 ? percent(best["top1"]) : best.front().dump(), best["epoch"].dump());
}

std::string checkpoint_as_text(const Json& checkpoint) {
  std::string text =
      fmt::format("checkpoint {}: valid, {}\nstep {}, {} done and {} of the next; ",
                  checkpoint["path"].get<std::string>(), human_bytes(checkpoint["bytes"]),
                  checkpoint["step"].dump(), counted(checkpoint["epochs_done"], "epoch"),
                  counted(checkpoint["steps_in_epoch"], "step"));
  text += checkpoint["best"].is_null() ? std::string("not validated yet")
                                       : say_best(checkpoint["best"]);
  const Json& input = checkpoint["input"];
  text += fmt::format("\nformat {}; network {} of {} nodes", checkpoint["format"].dump(),
                      checkpoint["network"].get<std::string>(), checkpoint["nodes"].dump());
  text +=
      fmt::format("\n{} tensors, weights and statistics of {} numbers; input {} x {} x {}; {}\n",
                  checkpoint["tensors"].size(), checkpoint["numbers"].dump(), input[0].dump(),
                  input[1].dump(), input[2].dump(), counted_outputs(checkpoint));
  text += shaping_as_text(checkpoint);
  if (const std::string exchange = checkpoint["exchange"]; exchange != model::exact_exchange)
    text += fmt::format("exchange '{}': what stands for ranks that may differ\n", exchange);
  text +=
      fmt::format("written by {} on {}, by build {}\n\n{}", counted(checkpoint["world"], "rank"),
                  checkpoint["backend"].get<std::string>(), checkpoint["build"].get<std::string>(),
                  given_keys(checkpoint["config"].get<std::string>()));
  return text;
}

std::string weights_as_text(const Json& weights) {
  const Json &input = weights["input"], &classes = weights["classes"];
  const bool normalised = !weights["mean"].empty();
  return fmt::format(
      "weights {}: {}, {}\nnetwork {} of {} nodes\n{} tensors of {} numbers; input {} x {} x {}; "
      "{}, "
      "{}\n{}{}\n",
      weights["path"].get<std::string>(), weights["format"].get<std::string>(),
      human_bytes(weights["bytes"]), weights["network"].get<std::string>(), weights["nodes"].dump(),
      weights["tensors"].size(), weights["numbers"].dump(), input[0].dump(), input[1].dump(),
      input[2].dump(), counted(weights["outputs"].get<std::size_t>(), "class"),
      classes.empty() ? "not named" : "named", shaping_as_text(weights),
      normalised ? fmt::format("mean {}, deviation {}", numbers(weights["mean"]),
                               numbers(weights["stddev"]))
                 : "mean and deviation are not in the file");
}

std::string run_as_text(const Json& run) {
  std::string text =
      fmt::format("run {}: {}, {} steps\n", run["path"].get<std::string>(),
                  run["finished"] ? "finished" : "not finished", run["steps"].dump());
  for (const Json& epoch : run["epochs"]) {
    text += fmt::format("  epoch {}: loss {}, top-1 {}", epoch["epoch"].dump(),
                        loss(epoch["train_loss"]), percent(epoch["train_top1"]));
    if (epoch.contains("val_top1"))
      text += fmt::format("; validation loss {}, top-1 {}", loss(epoch["val_loss"]),
                          percent(epoch["val_top1"]));
    if (epoch.contains("ema_top1"))
      text += fmt::format("; average: loss {}, top-1 {}", loss(epoch["ema_loss"]),
                          percent(epoch["ema_top1"]));
    text += '\n';
  }
  for (const Json& resume : run["resumes"])
    text += fmt::format("resumed after step {} with other keys or conditions: {}\n",
                        resume["resumed_from_step"].dump(),
                        join(resume["changes"].get<std::vector<std::string>>(), ", "));
  const Json& end = run["end"];
  if (!end.is_null() && end["status"] != "finished")
    text +=
        fmt::format("the newest start {} after step {}: {}\n",
                    end["status"] == "stopped" ? "was stopped" : end["status"].get<std::string>(),
                    end["steps"].dump(), end["reason"].get<std::string>());
  text += "checkpoints:";
  for (const Json& name : run["checkpoints"]) text += ' ' + name.get<std::string>();
  if (run["checkpoints"].empty()) text += " none";
  if (run["config"].is_null()) return text;
  return text + "\n\n" + given_keys(run["config"].get<std::string>());
}

constexpr double trial_seconds = 0.3;

/// Seconds per row when a thread reads rows in order, over whole blocks.
double in_order_s(const data::DataSet& rows) {
  const std::size_t count = rows.info().rows, block = rows.storage().block_rows;
  const bool jpeg = rows.info().encoding == data::Encoding::jpeg;
  std::vector<std::uint8_t> image(rows.info().row_bytes()), file;
  const double start = now_s();
  std::size_t done = 0;
  for (std::size_t row = 0; row < count && now_s() - start < trial_seconds; done = row)
    for (const std::size_t end = std::min(count, row + block); row < end; ++row)
      jpeg ? void(rows.read_jpeg(row, file)) : rows.read(row, image);
  return (now_s() - start) / static_cast<double>(std::max<std::size_t>(1, done));
}

/// The same in random order: each row needs its block decoded, unless the block is still cached.
double random_s(const data::DataSet& rows, double in_order) {
  const data::Storage storage = rows.storage();
  const double all =
      static_cast<double>(rows.info().rows) * static_cast<double>(rows.info().row_bytes());
  const double kept = std::min(1.0, static_cast<double>(storage.cache_bytes) / all);
  const double blocks = static_cast<double>(storage.block_rows) * (1 - kept);
  return storage.contiguous ? in_order : in_order * std::max(1.0, blocks);
}

Json advice(const data::DataSet& rows, double in_order, double random) {
  const data::Storage storage = rows.storage();
  Json texts = Json::array();
  if (storage.through_hdf5)
    texts.push_back(
        "HDF5 itself decodes these files, one thread at a time: rewrite them with a filter that "
        "lockstep knows (gzip, LZF, Zstandard, Blosc), or as shards ('lockstep pack --repack')");
  if (random > 1.5 * in_order)
    texts.push_back(fmt::format(
        "each row in random order costs a block of {} rows: rewrite the data as shards ('lockstep "
        "pack --repack') or with chunks of one row, or set data.cache-mb to {:.0f}, which holds "
        "all",
        storage.block_rows,
        static_cast<double>(rows.info().rows) * static_cast<double>(rows.info().row_bytes()) / 1e6 +
            1));
  if (storage.layout.find("cut into") != std::string::npos)
    texts.push_back("each row is spread over many chunks: chunks of whole rows are faster");
  if (storage.converted)
    texts.push_back(
        fmt::format("numbers are converted as they are read: {} with the channels last is faster{}",
                    choice_name(rows.info().element),
                    rows.info().element == data::Element::u8 ? " and smaller" : ""));
  return texts;
}

}  // namespace

std::string info_as_text(const Json& found) {
  if (found["kind"] == "checkpoint") return checkpoint_as_text(found);
  if (found["kind"] == "weights") return weights_as_text(found);
  if (found["kind"] == "run") return run_as_text(found);
  if (found["kind"] == "packed") {
    const std::string training = shards_as_text(found["train"]);
    return found["val"].is_null() ? training : training + "\n\n" + shards_as_text(found["val"]);
  }
  return shards_as_text(found);
}

Json reading_as_json(const data::DataSet& rows, const data::DataSet& uncached) {
  const data::Storage storage = rows.storage();
  double in_order = 0;
  try {
    in_order = in_order_s(uncached);
  } catch (const InputError& error) {  // the layout can be reported anyway
    return {{"layout", storage.layout}, {"problem", error.what()}};
  }
  const double random = random_s(rows, in_order);
  return {{"layout", storage.layout},
          {"contiguous", storage.contiguous},
          {"through_hdf5", storage.through_hdf5},
          {"block_rows", storage.block_rows},
          {"checksums", storage.checksums},
          {"rows_per_s_in_order", 1 / in_order},
          {"rows_per_s_random", 1 / random},
          {"advice", advice(rows, in_order, random)}};
}

std::string reading_as_text(const Json& reading) {
  if (reading.contains("problem"))
    return fmt::format("stored {}; {}\n", reading["layout"].get<std::string>(),
                       reading["problem"].get<std::string>());
  std::string text = fmt::format(
      "stored {}{}; a thread reads about {:.0f} rows/s in order, {:.0f} in random order\n",
      reading["layout"].get<std::string>(), reading["checksums"] ? "" : ", without checksums",
      reading["rows_per_s_in_order"].get<double>(), reading["rows_per_s_random"].get<double>());
  for (const Json& line : reading["advice"])
    text += fmt::format("  faster: {}\n", line.get<std::string>());
  return text;
}

namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
  bool text = false;
};

/// A page of an earlier report is replaced; what is anything else is kept.
void require_page_fits(const fs::path& out) {
  require(!fs::is_directory(out), fmt::format("-o {}: is a folder: name a file", out.string()));
  require_report_fits(out);
  require(!fs::is_regular_file(out) || fs::file_size(out) == 0 || study::is_run_report(out),
          fmt::format("-o {}: there is a file that is not a report of lockstep, and it is not "
                      "written over: name another",
                      out.string()));
}

/// Of several runs, those that are runs; the others are told, and make the status that of bad
/// input. Throws InputError where none is.
std::vector<fs::path> those_that_are(const std::vector<std::string>& names) {
  std::vector<fs::path> runs;
  for (const std::string& name : names) {
    try {
      study::require_run(name);
      runs.emplace_back(name);
    } catch (const InputError& error) {
      if (names.size() == 1) throw;
      log::error(error.what());
    }
  }
  require(!runs.empty(), "none of these is the folder of a run");
  return runs;
}

void require_a_page(const ReportOptions& options) {
  require(options.text || !options.out.empty(), "name the page that is to be made: -o FILE.html");
}

void check_options(const ReportOptions& options, const Supposed& supposed) {
  for (const std::string& run : options.runs)
    if (supposed.shows(run)) study::require_run(run);
  if (supposed.whole) require_a_page(options);
}

int make_page(Launch& launch, const ReportOptions& options) {
  if (launch.leave_to_rank_0()) return status_done;
  require_a_page(options);
  if (!options.out.empty()) require_page_fits(options.out);
  const std::vector<fs::path> runs = those_that_are(options.runs);
  const study::RunReport report = study::report_runs(runs);
  for (const std::string& note : report.notes) log::warn(note);
  if (options.text) log::text(report.text);
  if (!options.out.empty()) {
    write_report(options.out, report.html);
    log::info(
        fmt::format("{}: {}", options.out, human_bytes(static_cast<double>(report.html.size()))));
  }
  return runs.size() == options.runs.size() ? status_done : status_bad_input;
}

}  // namespace

Command add_report(Arguments root) {
  auto options = std::make_shared<ReportOptions>();
  Arguments app = root.add_command(
      "report",
      "Make one page about runs from their folders, also of a run that was killed: how they ended, "
      "curves, where time went, ranks, nodes, faults, and how to repeat them");
  app.add("runs", options->runs, "the runs' folders; several are compared").required();
  app.add("-o,--out", options->out, "the page: one file that needs nothing else").called("FILE");
  app.add_flag("--text", options->text, "print the report without its pictures");
  return {app, [options](Launch& launch) { return make_page(launch, *options); },
          [options](const Supposed& supposed) { check_options(*options, supposed); }};
}

}  // namespace lockstep::app
