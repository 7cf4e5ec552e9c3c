#include "app/info/info_text.hpp"

#include <vector>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/base/text/printable.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/report.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

/// What the saved configuration gives in addition to the defaults; all of it where this lockstep
/// does not know it.
std::string given_keys(const std::string& toml) {
  try {
    config::Config config;
    config::apply_toml(config, toml, "config");
    return observe::summarise(config) + "\n(--json has all keys)";
  } catch (const InputError&) {
    return toml;
  }
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

std::string shards_as_text(const Json& set) {
  std::string text =
      fmt::format("{} {}: {} of {}, {}, in {}\n", set["kind"].get<std::string>(),
                  set["path"].get<std::string>(), counted(set["rows"], "row"), form_as_text(set),
                  counted(set["channels"], "channel"), counted(set["files"].size(), "file"));
  if (!set["sets"].is_null()) text += one_line(set["sets"].get<std::string>()) + '\n';
  text += fmt::format("mean {}, deviation {}\n", numbers(set["mean"]), numbers(set["stddev"]));
  text += reading_as_text(set["reading"]);
  text += counted(set["classes"].size(), "class") + ":";
  for (const Json& one : set["classes"])
    text +=
        fmt::format("\n  {:>8}  {}", one["rows"].dump(), one_line(one["name"].get<std::string>()));
  return text;
}

std::string checkpoint_as_text(const Json& checkpoint) {
  std::string text =
      fmt::format("checkpoint {}: valid, {}\nstep {}, {} done and {} of the next; ",
                  checkpoint["path"].get<std::string>(), human_bytes(checkpoint["bytes"]),
                  checkpoint["step"].dump(), counted(checkpoint["epochs_done"], "epoch"),
                  counted(checkpoint["steps_in_epoch"], "step"));
  text += checkpoint["best"].is_null() ? std::string("not validated yet")
                                       : fmt::format("best validation top-1 {} in epoch {}",
                                                     percent(checkpoint["best"]["top1"]),
                                                     checkpoint["best"]["epoch"].dump());
  const Json& input = checkpoint["input"];
  text += fmt::format("\nformat {}; network {} of {} nodes", checkpoint["format"].dump(),
                      checkpoint["network"].get<std::string>(), checkpoint["nodes"].dump());
  text +=
      fmt::format("\n{} tensors, weights and statistics of {} numbers; input {} x {} x {}; {}\n",
                  checkpoint["tensors"].size(), checkpoint["numbers"].dump(), input[0].dump(),
                  input[1].dump(), input[2].dump(), counted(checkpoint["classes"].size(), "class"));
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
      "{}\n{}\n",
      weights["path"].get<std::string>(), weights["format"].get<std::string>(),
      human_bytes(weights["bytes"]), weights["network"].get<std::string>(), weights["nodes"].dump(),
      weights["tensors"].size(), weights["numbers"].dump(), input[0].dump(), input[1].dump(),
      input[2].dump(), counted(weights["outputs"].get<std::size_t>(), "class"),
      classes.empty() ? "not named" : "named",
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

}  // namespace lockstep::app
