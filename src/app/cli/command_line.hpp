#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/config/config.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep::app {

/// One option of a command; its methods describe it further. Its help is one notation for all:
/// "--name TYPE  what it is [range; default VALUE]". Null: an option that is not made.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument& required();
  Argument& one_of(const std::vector<std::string>& values);
  Argument& within(double low, double high);
  /// The name of its value in the help.
  Argument& called(const std::string& kind);
  /// The range, without a check of it.
  Argument& ranges(const std::string& range);
  /// Shows this default in the help, or the variable's present value; else there is none.
  Argument& shows(const std::string& value);
  Argument& shows_default();
  /// The section of the help that has it; `usual`: a help without a section shows it, too.
  Argument& under(const std::string& section, bool usual);
  /// Makes it a flag that a value may follow.
  Argument& value_is_optional();

 private:
  template <class Setting>
  Argument& set(Setting setting);

  CLI::Option* option_;
};

/// The options of a command: a handle on CLI11's App. Only this folder's sources include CLI11,
/// because it takes seconds to compile. Variables must live until the command has run. Only the
/// command that the line names gets its options: all of them take longer than many a command.
class Arguments {
 public:
  /// `named`: the command of this one that the line names.
  Arguments(CLI::App& app, const std::string& named) : app_(&app), named_(named) {}

  Arguments add_command(const std::string& name, const std::string& help);
  void require_command();

  /// T: std::string, a path, std::size_t, double or float, std::optional of these, a list of
  /// strings.
  template <class T>
  Argument add(const std::string& names, T& value, const std::string& help);
  Argument add_flag(const std::string& names, bool& value, const std::string& help);
  /// Passes the value to `take`, which throws InputError for a bad one.
  Argument add_taken(const std::string& names, const std::function<void(const std::string&)>& take,
                     const std::string& help);

  /// Unknown options are not an error; unknown() returns them.
  void allow_unknown();
  std::vector<std::string> unknown() const;

  /// Whether this command, or this option of it, was given.
  bool given() const;
  bool given(const std::string& name) const;

 private:
  Arguments(CLI::App& app, bool made) : app_(&app), made_(made) {}

  CLI::App* app_;
  std::optional<std::string> named_;  // without it all commands of a made one are made
  bool made_ = true;
};

struct CountRange {
  std::uint64_t low = 0, high = std::numeric_limits<std::uint64_t>::max();
  bool automatic = false;  ///< 0 is "auto"

  std::string text() const;  ///< "auto, or 1 to 64"
};

template <std::integral T>
void take_count(T& value, std::uint64_t count) {
  value = static_cast<T>(count);
}
template <std::integral T>
void take_count(std::optional<T>& value, std::uint64_t count) {
  value = static_cast<T>(count);
}

/// An option that takes a whole number within `range`, which must fit T, as strictly as the keys of
/// a configuration: CLI11 alone reads "-1" as 2^64 - 1 and "010" as 8. Parsing throws InputError
/// naming the option; `value` must live as long as the app.
template <class T>
Argument add_count(Arguments app, const std::string& names, T& value, CountRange range,
                   const std::string& help) {
  Argument option = app.add_taken(
      names,
      [&value, name = names.substr(0, names.find(',')), range](const std::string& text) {
        const bool chosen = range.automatic && text == "auto";
        take_count(value, chosen ? 0 : parse_count(text, name, range.low, range.high));
      },
      help);
  option.called("NUMBER").ranges(range.text());
  if constexpr (std::integral<T>)
    if (range.automatic || std::cmp_greater_equal(value, range.low))
      option.shows(range.automatic && value == 0 ? "auto" : std::to_string(value));
  return option;
}

/// The numbers of a list "1,2,4". Throws InputError naming the option.
inline std::vector<std::size_t> counts_of(const std::string& list, const char* option) {
  std::vector<std::size_t> counts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    counts.push_back(parse_count(list.substr(at, end - at), option, 1, 1 << 24));
    at = end + 1;
  }
  return counts;
}

/// Ranges that several commands share.
constexpr CountRange a_batch{1, 1 << 20}, threads_or_all{0, config::most_threads, true};

/// The option --json-file, of commands whose text does not become JSON.
Argument add_json_file(Arguments app, std::string& file, const std::string& help);
/// The option --backend of commands that are no training.
Argument add_backend(Arguments app, std::string& backend);

/// The program's command line. CLI11 reads it; main does not see CLI11.
class CommandLine {
 public:
  /// `version`: what --version prints; `footer`: what ends the help.
  CommandLine(int argc, char** argv, const std::string& version, const std::string& footer);
  ~CommandLine();

  /// Where commands are added, before parse().
  Arguments root();
  std::string help() const;

  /// For words of which some may be missing: no option is required.
  void require_nothing();

  /// Reads the words. "help", "help COMMAND" and "version" count as --help and --version, and a
  /// word after --help, or after COMMAND, names what of the help is meant: a section, an option, or
  /// all. Returns the text that was asked for instead of a command. Throws InputError naming a
  /// command or an option that does not exist, and one that is similar, or what is wrong with a
  /// value.
  std::optional<std::string> parse();

 private:
  std::optional<std::string> asked_help() const;

  std::vector<std::string> words_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace lockstep::app
