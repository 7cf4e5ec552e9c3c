#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/lint/lint.hpp"
#include "lockstep/config/keys.hpp"

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

std::string fault_of_toml(const std::string& toml) {
  try {
    config::config_in(toml, "the TOML");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

using Words = std::vector<std::string>;

/// What lockstep would report of a command, before it needs a device or other ranks; empty: no
/// fault.
std::string fault_of(const Words& words, const Supposed& supposed) {
  const log::Silence silence;
  Words line{"lockstep"};
  line.insert(line.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : line) argv.push_back(word.data());
  try {
    CommandLine parser(static_cast<int>(argv.size()), argv.data(), "", "");
    std::vector<Command> commands;
    for (const auto& [add, product] : all_commands) commands.push_back(add(parser.root()));
    if (!supposed.whole) parser.require_nothing();
    if (!parser.parse()) check_given(commands, supposed);
    return "";
  } catch (const std::filesystem::filesystem_error& error) {
    return error.path1().string() + ": " + error.code().message();
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// One variable, which may be any words, or none.
bool is_variable(const std::string& word) {
  if (word.starts_with("${")) return word.find('}') == word.size() - 1;
  return word.starts_with("$(") ||
         (word.starts_with('$') && word.find_first_of("/.:=-") == word.npos);
}

/// An option and its value.
struct Unit {
  std::string name;                  ///< with its dashes; empty: a word alone
  std::optional<std::string> value;  ///< or that word
  bool joined = false;               ///< --name=value

  void append_to(Words& words) const {
    if (joined) return words.push_back(name + "=" + *value);
    if (!name.empty()) words.push_back(name);
    if (value) words.push_back(*value);
  }
};

std::vector<Unit> units_of(const Words& words) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with('-') || word == "-") {
      units.push_back({.name = "", .value = word});
    } else if (const std::size_t equals = word.find('='); equals != word.npos) {
      units.push_back(
          {.name = word.substr(0, equals), .value = word.substr(equals + 1), .joined = true});
    } else {
      units.push_back({.name = word, .value = {}});
      if (i + 1 < words.size() && !words[i + 1].starts_with("--")) units.back().value = words[++i];
    }
  }
  return units;
}

/// Judges one command. Each option is judged alone, so that all that are wrong are found; then,
/// if none is, all together. What a variable holds is not known: a fault then counts if it is there
/// whatever value the option takes.
class Judge {
 public:
  explicit Judge(const cluster::ProgramCall& call) : call_(call) {
    const auto shows = [this](const std::string& path) {
      if (path.empty() || call_.shows(path)) return !path.empty();
      add_unseen(path);
      return false;
    };
    alone_ = {.ranks = call.ranks.value_or(usual_ranks), .shows = shows, .whole = false};
    together_ = {.ranks = alone_.ranks, .shows = shows, .whole = true};
  }

  cluster::CallFaults judge() {
    if (call_.words.empty() || !cluster::is_literal(call_.words.front())) return {};
    std::size_t commands = 1;
    if (call_.words[0] == "bench" || call_.words[0] == "scaling") commands = 2;
    commands = std::min(commands, call_.words.size());
    const auto first = call_.words.begin() + static_cast<std::ptrdiff_t>(commands);
    head_.assign(call_.words.begin(), first);
    if (!add_fault(fault_of(head_, alone_))) judge_options(Words(first, call_.words.end()));
    if (found_.faults.empty()) judge_together();
    return std::move(found_);
  }

 private:
  static constexpr int usual_ranks = 2;

  void judge_options(const Words& words) {
    for (const Unit& unit : units_of(words)) {
      const bool hidden = unit.name.empty() ? is_variable(*unit.value) : false;
      const bool unread = unit.name == "--config" && unit.value && !call_.shows(*unit.value);
      if (hidden || unread) {
        together_.whole = false;
        add_unseen(*unit.value);
      } else if (unit.name.empty()) {
        units_.push_back({unit});
      } else if (unit.value && !cluster::is_literal(*unit.value)) {
        units_.push_back(taken_values(unit));
        if (!units_.back().empty()) continue;
        units_.pop_back();
        together_.whole = false;
      } else {
        add_fault(fault_of(with(unit), alone_));
        units_.push_back({unit});
      }
    }
  }

  /// The unit with values that the option takes; as it is where that may be any text.
  std::vector<Unit> taken_values(const Unit& unit) const {
    if (fault_of(with(unit), alone_).empty()) return {unit};
    Words values{"1", "0", "0.5", "auto", "true"};
    if (const config::ConfigKey* key = config::find_key(unit.name.substr(2)))
      values.insert(values.end(), key->choices.begin(), key->choices.end());
    std::vector<Unit> taken;
    for (const std::string& value : values) {
      Unit other = unit;
      other.value = value;
      if (fault_of(with(other), alone_).empty()) taken.push_back(other);
    }
    return taken;
  }

  void judge_together() {
    const auto fault_with = [&](std::size_t other, const Unit* unit, const Supposed& supposed) {
      Words words = head_;
      for (std::size_t i = 0; i < units_.size(); ++i)
        if (i != other)
          units_[i].front().append_to(words);
        else if (unit != nullptr)
          unit->append_to(words);
      return fault_of(words, supposed);
    };
    const std::string fault = fault_with(units_.size(), nullptr, together_);
    if (fault.empty()) return;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (units_[i].size() == 1) continue;
      if (fault_with(i, nullptr, together_) != fault) return;
      for (const Unit& unit : units_[i])
        if (fault_with(i, &unit, together_) != fault) return;
    }
    for (Supposed other = together_; const int ranks : {1, 4, 8}) {
      other.ranks = call_.ranks.value_or(ranks);
      if (fault_with(units_.size(), nullptr, other) != fault) return;
    }
    add_fault(fault);
  }

  Words with(const Unit& unit) const {
    Words words = head_;
    unit.append_to(words);
    return words;
  }

  /// False: there is no fault.
  bool add_fault(const std::string& fault) {
    if (fault.empty()) return false;
    if (std::ranges::find(found_.faults, fault) == found_.faults.end())
      found_.faults.push_back(fault);
    return true;
  }

  void add_unseen(const std::string& word) {
    for (std::size_t i = 0; i + 1 < call_.words.size(); ++i)
      if (call_.words[i] == "--out" && call_.words[i + 1] == word) return;  // it is made
    Words& all = found_.unseen;
    if (std::ranges::find(all, word) == all.end()) all.push_back(word);
  }

  const cluster::ProgramCall& call_;
  Words head_;
  std::vector<std::vector<Unit>> units_;  ///< each with the values that are tried
  Supposed alone_, together_;
  cluster::CallFaults found_;
};

int run(const std::vector<std::string>& files, bool json) {
  const cluster::LintContext context{
      .faults_of_call = [](const cluster::ProgramCall& call) { return Judge(call).judge(); },
      .fault_of_toml = fault_of_toml,
      .is_folder = [](const std::string& path) { return std::filesystem::is_directory(path); },
      .slurm = cluster::srun_version};
  std::size_t errors = 0;
  Json all = Json::array();
  for (const std::string& file : files) {
    require(std::filesystem::exists(file), fmt::format("{}: no such file", file));
    require(std::filesystem::is_regular_file(file),
            fmt::format("{}: is {}: name batch scripts", file,
                        std::filesystem::is_directory(file) ? "a folder" : "not a file"));
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
                       "time, requeueing; and what each command of lockstep in it would report "
                       "before it starts, seen from the folder in which lint runs. A note says "
                       "what only the job can know. Exit status 2 when there are errors.");
  app.add("script", options->files, "one or more batch scripts").required();
  app.add_flag("--json", options->json, "print JSON");
  return {app, [options](Launch&) { return run(options->files, options->json); }};
}

}  // namespace lockstep::app
