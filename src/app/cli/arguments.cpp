#include "app/cli/arguments.hpp"

#include <filesystem>
#include <optional>

#include <CLI/CLI.hpp>

namespace lockstep::app {

Argument& Argument::required() {
  option_->required();
  return *this;
}

Argument& Argument::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Argument& Argument::within(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Argument& Argument::called(const std::string& kind) {
  option_->type_name(kind);
  return *this;
}

Argument& Argument::shows(const std::string& value) {
  option_->default_str(value);
  return *this;
}

Argument& Argument::shows_default() {
  option_->capture_default_str();
  return *this;
}

Argument& Argument::under(const std::string& heading) {
  option_->group(heading);
  return *this;
}

Argument& Argument::value_is_optional() {
  option_->expected(0)->expected(0, 1);
  return *this;
}

Arguments Arguments::add_command(const std::string& name, const std::string& help) {
  return Arguments(*app_->add_subcommand(name, help));
}

void Arguments::require_command() { app_->require_subcommand(1); }

template <class T>
Argument Arguments::add(const std::string& names, T& value, const std::string& help) {
  return Argument(*app_->add_option(names, value, help));
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
  return Argument(*app_->add_flag(names, value, help));
}

Argument Arguments::add_taken(const std::string& names,
                              const std::function<void(const std::string&)>& take,
                              const std::string& help) {
  return Argument(*app_->add_option_function<std::string>(names, take, help));
}

void Arguments::allow_unknown() { app_->allow_extras(); }

std::vector<std::string> Arguments::unknown() const { return app_->remaining(); }

bool Arguments::given() const { return app_->parsed(); }

bool Arguments::given(const std::string& name) const { return app_->count(name) > 0; }

}  // namespace lockstep::app
