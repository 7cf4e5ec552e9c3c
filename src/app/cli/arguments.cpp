#include "app/cli/arguments.hpp"

#include <filesystem>
#include <optional>

#include <CLI/CLI.hpp>

namespace lockstep::app {

template <class Setting>
Argument& Argument::set(Setting setting) {
  if (option_ != nullptr) setting(*option_);
  return *this;
}

Argument& Argument::required() {
  return set([&](CLI::Option& one) { one.required(); });
}

Argument& Argument::one_of(const std::vector<std::string>& values) {
  return set([&](CLI::Option& one) { one.check(CLI::IsMember(values)); });
}

Argument& Argument::within(double low, double high) {
  return set([&](CLI::Option& one) { one.check(CLI::Range(low, high)); });
}

Argument& Argument::called(const std::string& kind) {
  return set([&](CLI::Option& one) { one.type_name(kind); });
}

Argument& Argument::shows(const std::string& value) {
  return set([&](CLI::Option& one) { one.default_str(value); });
}

Argument& Argument::shows_default() {
  return set([&](CLI::Option& one) { one.capture_default_str(); });
}

Argument& Argument::under(const std::string& heading) {
  return set([&](CLI::Option& one) { one.group(heading); });
}

Argument& Argument::value_is_optional() {
  return set([&](CLI::Option& one) { one.expected(0)->expected(0, 1); });
}

Arguments Arguments::add_command(const std::string& name, const std::string& help) {
  return Arguments(*app_->add_subcommand(name, help), made_ && named_.value_or(name) == name);
}

void Arguments::require_command() { app_->require_subcommand(1); }

template <class T>
Argument Arguments::add(const std::string& names, T& value, const std::string& help) {
  return Argument(made_ ? app_->add_option(names, value, help) : nullptr);
}

template Argument Arguments::add(const std::string&, std::string&, const std::string&);
template Argument Arguments::add(const std::string&, std::vector<std::string>&, const std::string&);
template Argument Arguments::add(const std::string&, std::filesystem::path&, const std::string&);
template Argument Arguments::add(const std::string&, std::size_t&, const std::string&);
template Argument Arguments::add(const std::string&, double&, const std::string&);
template Argument Arguments::add(const std::string&, float&, const std::string&);
template Argument Arguments::add(const std::string&, std::optional<std::string>&,
                                 const std::string&);
template Argument Arguments::add(const std::string&, std::optional<double>&, const std::string&);

Argument Arguments::add_flag(const std::string& names, bool& value, const std::string& help) {
  return Argument(made_ ? app_->add_flag(names, value, help) : nullptr);
}

Argument Arguments::add_taken(const std::string& names,
                              const std::function<void(const std::string&)>& take,
                              const std::string& help) {
  return Argument(made_ ? app_->add_option_function<std::string>(names, take, help) : nullptr);
}

void Arguments::allow_unknown() { app_->allow_extras(); }

std::vector<std::string> Arguments::unknown() const { return app_->remaining(); }

bool Arguments::given() const { return app_->parsed(); }

bool Arguments::given(const std::string& name) const { return app_->count(name) > 0; }

}  // namespace lockstep::app
