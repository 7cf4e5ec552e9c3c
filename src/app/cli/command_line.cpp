#include "app/cli/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "app/cli/help.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"

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
  return set([&](CLI::Option& one) {
    CLI::Validator member = CLI::IsMember(values);
    one.check(member.description(""));
    one.type_name(join(values, "|"));
  });
}

Argument& Argument::within(double low, double high) {
  return set([&](CLI::Option& one) {
    CLI::Validator range = CLI::Range(low, high);
    one.check(range.description(""));
    one.option_text(fmt::format("{} to {}", low, high));
  });
}

Argument& Argument::called(const std::string& kind) {
  return set([&](CLI::Option& one) { one.type_name(kind); });
}

Argument& Argument::ranges(const std::string& range) {
  return set([&](CLI::Option& one) { one.option_text(range); });
}

Argument& Argument::shows(const std::string& value) {
  return set([&](CLI::Option& one) { one.default_str(value); });
}

Argument& Argument::shows_default() {
  return set([&](CLI::Option& one) { one.capture_default_str(); });
}

Argument& Argument::under(const std::string& section, bool usual) {
  return set([&](CLI::Option& one) { one.group(section_name(section, usual)); });
}

Argument& Argument::value_is_optional() {
  return set([&](CLI::Option& one) { one.expected(0)->expected(0, 1); });
}

Arguments Arguments::add_command(const std::string& name, const std::string& help) {
  return Arguments(*app_->add_subcommand(name, help), made_ && named_.value_or(name) == name);
}

void Arguments::require_command() { app_->require_subcommand(1); }

namespace {

template <class T>
constexpr bool is_real = std::is_floating_point_v<T> || std::is_same_v<T, std::optional<double>>;

}  // namespace

template <class T>
Argument Arguments::add(const std::string& names, T& value, const std::string& help) {
  Argument option(made_ ? app_->add_option(names, value, help) : nullptr);
  if constexpr (is_real<T>) option.called("NUMBER");
  return option;
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

std::string CountRange::text() const {
  const std::uint64_t least = automatic ? std::max<std::uint64_t>(low, 1) : low;
  const std::string from = automatic ? "auto, or " : "";
  if (high == std::numeric_limits<std::uint64_t>::max())
    return from + fmt::format("at least {}", least);
  return from + fmt::format("{} to {}", least, high);
}

Argument add_json_file(Arguments app, std::string& file, const std::string& help) {
  Argument option = app.add("--json-file,--json", file, help);  // --json: an older name
  option.called("FILE");
  return option;
}

Argument add_backend(Arguments app, std::string& backend) {
  Argument option = app.add("--backend", backend, "where to compute");
  option.one_of({"auto", "cpu", "cuda"}).shows_default();
  return option;
}

void Arguments::allow_unknown() { app_->allow_extras(); }

std::vector<std::string> Arguments::unknown() const { return app_->remaining(); }

bool Arguments::given() const { return app_->parsed(); }

bool Arguments::given(const std::string& name) const { return app_->count(name) > 0; }

namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

/// "lockstep bench data"
std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return (parent != nullptr ? full_name(*parent) + " " : "") + app.get_name();
}

void require_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = command_names(app);
  const bool known = std::find(names.begin(), names.end(), word) != names.end();
  require(known || word != "version", "'lockstep version' takes no options");
  require(known, fmt::format("{} has no command '{}'{} (its commands are {})", full_name(app), word,
                             did_you_mean(word, names), join(names, ", ")));
}

bool takes_words(const CLI::App& app) {
  return !app.get_options([](const CLI::Option* one) { return one->get_positional(); }).empty();
}

/// The commands in these words must exist. After a command that takes other words, too, any may be
/// one of them.
void require_commands(const CLI::App& root, const std::vector<std::string>& words) {
  const CLI::App* app = &root;
  for (const std::string& word : words) {
    if (word.starts_with('-') || command_names(*app).empty() || takes_words(*app)) return;
    require_command(*app, word);
    app = app->get_subcommand(word);
  }
}

/// The command that was given last: "data" of "bench data".
const CLI::App& given_command(const CLI::App& root) {
  const CLI::App* app = &root;
  for (auto given = app->get_subcommands(); !given.empty(); given = app->get_subcommands())
    app = given.front();
  return *app;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// An option with this last part: --workers is --data.workers.
std::string same_last_part(const std::string& name, const std::vector<std::string>& known) {
  const std::string part = name.substr(name.find_last_of(".-") + 1);
  for (const std::string& one : known)
    if (one.substr(one.find_last_of(".-") + 1) == part && one.find('.') != one.npos) return one;
  return "";
}

/// The words of a command line, in which "help", "help COMMAND" and "version" became options.
std::vector<std::string> command_words(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.size() == 1 && words[0] == "version") words[0] = "--version";
  if (!words.empty() && words[0] == "help") words[0] = "--help";
  return words;
}

/// The first word that is no option; "": there is none.
std::string named_command(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (!word.starts_with('-')) return word;
  return "";
}

/// The words in the order and form that CLI11 takes: reversed, and "--key=" as "--key" and an empty
/// text, because CLI11 would take the next word for the value.
std::vector<std::string> for_parser(const std::vector<std::string>& words) {
  std::vector<std::string> reversed;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    const bool empty = word->starts_with("--") && word->find('=') == word->size() - 1;
    if (empty) reversed.emplace_back();
    reversed.push_back(word->substr(0, word->size() - (empty ? 1 : 0)));
  }
  return reversed;
}

std::size_t columns_of_help() { return static_cast<std::size_t>(log::columns()); }

/// What to say about words that no option took: the first of them, and which option is similar.
/// `root` has parsed `words`.
std::string describe_unexpected(const CLI::App& root, const std::vector<std::string>& words) {
  const CLI::App& command = given_command(root);
  const std::vector<std::string> left = root.remaining(true);
  const auto first = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(left.begin(), left.end(), word) != left.end();
  });
  const std::string word = first != words.end() ? *first : left.empty() ? "" : left.front();
  const std::string who = full_name(command);
  if (!word.starts_with("--"))
    return fmt::format("'{}' was not expected; '{} --help' says what is", word, who);
  const std::string name = word.substr(0, word.find('='));
  const std::vector<std::string> known = option_names(command);
  std::string hint = did_you_mean(name, known);
  if (const std::string same = same_last_part(name, known); hint.empty() && !same.empty())
    hint = fmt::format("; did you mean '{}'?", same);
  if (hint.empty()) hint = fmt::format("; '{} --help' lists all", who);
  return fmt::format("{} has no option {}{}", who, name, hint);
}

/// "--json: At Most 1 required but received 2" in plain words.
std::string plainly(std::string text) {
  const std::string_view theirs = "At Most 1 required but received ";
  if (const std::size_t at = text.find(theirs); at != text.npos)
    text.replace(at, theirs.size(), "takes one value, and is given ");
  return text;
}

}  // namespace

CommandLine::CommandLine(int argc, char** argv, const std::string& version,
                         const std::string& footer)
    : words_(command_words(argc, argv)),
      app_(std::make_unique<CLI::App>("Trains ResNets with synchronous SGD on many ranks.",
                                      "lockstep")) {
  app_->set_version_flag("--version", version);
  app_->footer(footer);
  app_->require_subcommand(0, 1);  // a second word is no command: `pack train` packs a folder
}

CommandLine::~CommandLine() = default;

Arguments CommandLine::root() { return Arguments(*app_, named_command(words_)); }

std::string CommandLine::help() const { return help_of(*app_, "", columns_of_help()); }

/// Words that name commands say whose help it is; the next one after --help says what of it.
std::optional<std::string> CommandLine::asked_help() const {
  const auto asks = [](const std::string& word) { return word == "--help" || word == "-h"; };
  const auto help = std::ranges::find_if(words_, asks);
  if (help == words_.end()) return std::nullopt;
  const CLI::App* app = app_.get();
  std::string topic;
  for (auto word = words_.begin(); word != words_.end() && topic.empty(); ++word) {
    const std::vector<std::string> names = command_names(*app);
    if (std::ranges::find(names, *word) != names.end())
      app = app->get_subcommand(*word);
    else if (app == app_.get() && !word->starts_with('-'))
      require_command(*app, *word);
    else if (word > help)
      topic = word->substr(std::min(word->find_first_not_of('-'), word->size()));
  }
  return help_of(*app, topic, columns_of_help());
}

namespace {

void require_nothing_of(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) option->required(false);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    require_nothing_of(*command);
}

}  // namespace

void CommandLine::require_nothing() { require_nothing_of(*app_); }

std::optional<std::string> CommandLine::parse() {
  if (const auto help = asked_help()) return help;
  require_commands(*app_, words_);
  try {
    app_->parse(for_parser(words_));
  } catch (const CLI::ExtrasError&) {
    throw InputError(describe_unexpected(*app_, words_));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      throw InputError(fmt::format("{} (--help lists all options)", plainly(error.what())));
    std::ostringstream out;
    app_->exit(error, out, out);
    std::string asked_for = out.str();
    if (asked_for.ends_with('\n')) asked_for.pop_back();
    return asked_for;
  }
  return std::nullopt;
}

}  // namespace lockstep::app
