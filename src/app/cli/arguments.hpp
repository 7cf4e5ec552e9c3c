#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep::app {

/// One option of a command; its methods describe it further. Null: an option that is not made.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument& required();
  Argument& one_of(const std::vector<std::string>& values);
  Argument& within(double low, double high);
  /// The name of its value in the help.
  Argument& called(const std::string& kind);
  /// Shows this default in the help, or the variable's present value.
  Argument& shows(const std::string& value);
  Argument& shows_default();
  /// The heading above it in the help.
  Argument& under(const std::string& heading);
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

}  // namespace lockstep::app
