#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep::app {

/// One option of a command, which may be described further.
class Argument {
 public:
  explicit Argument(CLI::Option& option) : option_(&option) {}

  Argument& required();
  Argument& one_of(const std::vector<std::string>& values);
  Argument& within(double low, double high);
  /// What its help calls the value.
  Argument& called(const std::string& kind);
  /// The help shows this default, or the variable's value as it is now.
  Argument& shows(const std::string& value);
  Argument& shows_default();
  /// The heading that it stands under.
  Argument& under(const std::string& heading);
  /// Like a flag, which a value may follow all the same.
  Argument& value_is_optional();

 private:
  CLI::Option* option_;
};

/// What a command is told: a handle on CLI11's App. CLI11 is seen by arguments.cpp and main.cpp
/// alone, for it takes seconds to compile wherever it is included. Variables must live until the
/// command has run.
class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(&app) {}

  Arguments add_command(const std::string& name, const std::string& help);
  void require_command();

  /// T: std::string, a path, std::size_t, double or float, std::optional of these, a list of
  /// strings.
  template <class T>
  Argument add(const std::string& names, T& value, const std::string& help);
  Argument add_flag(const std::string& names, bool& value, const std::string& help);
  /// The value is given to `take`, which throws InputError for a bad one.
  Argument add_taken(const std::string& names, const std::function<void(const std::string&)>& take,
                     const std::string& help);

  /// Options that nobody knows are no error; unknown() has them.
  void allow_unknown();
  std::vector<std::string> unknown() const;

  /// Whether this command, or this option of it, was given.
  bool given() const;
  bool given(const std::string& name) const;

 private:
  CLI::App* app_;
};

}  // namespace lockstep::app
