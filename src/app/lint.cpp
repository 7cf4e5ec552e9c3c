#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/lint/lint.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/nn/resnet.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

const char* word(cluster::Severity severity) {
  if (severity == cluster::Severity::note) return "note";
  return severity == cluster::Severity::error ? "error" : "warning";
}

std::size_t count(const std::vector<cluster::Finding>& findings, cluster::Severity severity) {
  return static_cast<std::size_t>(
      std::ranges::count(findings, severity, &cluster::Finding::severity));
}

/// In the form of compilers' messages, so that an editor finds the line.
std::string as_text(const std::string& file, const std::vector<cluster::Finding>& findings) {
  std::string text;
  for (const cluster::Finding& one : findings)
    text += fmt::format("{}:{} {}: {} [{}]\n", file,
                        one.line > 0 ? fmt::format("{}:", one.line) : std::string(),
                        word(one.severity), one.text, one.rule);
  return text + fmt::format("{}: {}, {}", file,
                            counted(count(findings, cluster::Severity::error), "error"),
                            counted(count(findings, cluster::Severity::warning), "warning"));
}

Json as_json(const std::string& file, const std::vector<cluster::Finding>& findings) {
  Json list = Json::array();
  for (const cluster::Finding& one : findings)
    list.push_back({{"line", one.line},
                    {"severity", word(one.severity)},
                    {"rule", one.rule},
                    {"text", one.text}});
  return {{"file", file},
          {"errors", count(findings, cluster::Severity::error)},
          {"warnings", count(findings, cluster::Severity::warning)},
          {"findings", std::move(list)}};
}

/// A name is judged with the key's default as its value.
std::string fault_of_option(const std::string& name, const std::optional<std::string>& value) {
  if (RunOptions::is_other_name(name)) return "";
  try {
    config::Config config;
    const config::ConfigKey* key = config::find_key(name);
    if (key == nullptr)
      config::set_key(config, name, "");
    else if (value && !(key->takes_no_value() && value->empty()))
      config::set_key(config, name, *value);
    if (name == "model" && value) nn::resnet(nn::usual_resnet(*value, 0, 0));
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string fault_of_toml(const std::string& toml) {
  try {
    config::config_in(toml, "the TOML");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string fault_of_path(const std::string& path) {
  if (::access(path.c_str(), R_OK) == 0) return "";
  return errno == ENOENT ? "no such file or folder, seen from here"
                         : fmt::format("cannot be read: {}", std::strerror(errno));
}

std::vector<std::string> input_keys() {
  std::vector<std::string> names;
  for (const config::ConfigKey& key : config::config_keys())
    if (key.names_input) names.push_back(key.name);
  return names;
}

cluster::LintContext::ConfigFile read_config(const std::string& path) {
  cluster::LintContext::ConfigFile file;
  config::Config config;
  try {
    config::apply_toml(config, read_text(path), path);
  } catch (const InputError& error) {
    file.fault = error.what();
  }
  for (const std::string& key : input_keys())
    if (std::string found = config::find_key(key)->get(config); !found.empty())
      file.inputs.emplace_back(key, std::move(found));
  return file;
}

int run(const std::vector<std::string>& files, bool json) {
  const cluster::LintContext context{
      .fault_of_option = fault_of_option,
      .fault_of_toml = fault_of_toml,
      .is_folder = [](const std::string& path) { return std::filesystem::is_directory(path); },
      .fault_of_path = fault_of_path,
      .input_keys = input_keys(),
      .read_config = read_config};
  std::size_t errors = 0;
  Json all = Json::array();
  for (const std::string& file : files) {
    require(std::filesystem::exists(file), fmt::format("{}: no such file", file));
    require(std::filesystem::is_regular_file(file),
            fmt::format("{}: is not a file: name batch scripts", file));
    const auto findings = cluster::lint_batch_script(read_text(file), context);
    errors += count(findings, cluster::Severity::error);
    if (json)
      all.push_back(as_json(file, findings));
    else
      log::text(as_text(file, findings));
  }
  if (json) log::text(json_text(all, 2));
  return errors == 0 ? status_done : status_bad_input;
}

}  // namespace

Command add_lint(Arguments root) {
  struct Options {
    std::vector<std::string> files;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Arguments app =
      root.add_command("lint",
                       "Report what would go wrong with a script for sbatch, by line: tasks "
                       "compared with GPUs, cores that srun does not inherit, signals, memory, "
                       "time, requeueing, unknown options, --config and data that are not there, "
                       "seen from the folder in which lint runs. A note says what only the job can "
                       "know. Exit status 2 when there are errors.");
  app.add("script", options->files, "one or more batch scripts").required();
  app.add_flag("--json", options->json, "print JSON");
  return {app, [options](Launch&) { return run(options->files, options->json); }};
}

}  // namespace lockstep::app
