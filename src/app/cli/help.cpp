#include "app/cli/help.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::app {
namespace {

constexpr const char* own_options = "Options";
constexpr std::size_t text_column = 30;

bool is_rare(const CLI::Option& option) { return option.get_group().ends_with('/'); }

std::string section_of(const CLI::Option& option) {
  return option.get_group().substr(0, option.get_group().find('/'));
}

/// Those that are not the options of all commands.
std::vector<std::string> sections_of(const CLI::App& app) {
  std::vector<std::string> sections;
  for (const CLI::Option* option : app.get_options())
    if (const std::string name = section_of(*option);
        name != own_options && std::ranges::find(sections, name) == sections.end())
      sections.push_back(name);
  return sections;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// What its value is called; the choices, where they are long, follow the text.
std::string kind_of(const CLI::Option& option) {
  constexpr std::size_t longest = 40;
  return option.get_type_name().size() > longest ? "NAME" : option.get_type_name();
}

/// "-o, --out FILE"; further names are older ones.
std::string name_of(const CLI::Option& option) {
  std::string name = option.get_positional() ? option.get_name(true) : "";
  if (!option.get_snames().empty()) name = "-" + option.get_snames().front();
  if (!option.get_lnames().empty())
    name += (name.empty() ? "--" : ", --") + option.get_lnames().front();
  return takes_value(option) && !option.get_positional() ? name + " " + kind_of(option) : name;
}

/// "what it is [1 to 9; default 5]"
std::string text_of(const CLI::Option& option) {
  std::vector<std::string> facts;
  if (const std::string kind = option.get_type_name(); kind != kind_of(option)) {
    std::string choices;
    for (const char c : kind) choices += c == '|' ? std::string(", ") : std::string(1, c);
    facts.push_back("one of " + choices);
  }
  if (!option.get_option_text().empty()) facts.push_back(option.get_option_text());
  if (option.get_required())
    facts.emplace_back("required");
  else if (takes_value(option))
    facts.push_back("default " +
                    (option.get_default_str().empty() ? "none" : option.get_default_str()));
  return option.get_description() + (facts.empty() ? "" : " [" + join(facts, "; ") + "]");
}

/// The words in lines of that many columns, but for the first indented; 0: in one line.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns) {
  if (columns == 0) return text;
  const std::size_t width = columns > indent + 20 ? columns - indent : 20;
  std::string lines;
  std::size_t used = 0;
  std::istringstream words(text);
  for (std::string word; words >> word; used += word.size()) {
    if (used > 0 && used + 1 + word.size() > width) {
      lines += "\n" + std::string(indent, ' ');
      used = 0;
    } else if (used > 0) {
      lines += ' ';
      ++used;
    }
    lines += word;
  }
  return lines;
}

std::string line_of(const std::string& name, const std::string& text, std::size_t columns) {
  std::string line = "  " + name;
  if (line.size() + 2 <= text_column)
    line.resize(text_column, ' ');
  else
    line += columns == 0 ? "  " : "\n" + std::string(text_column, ' ');
  return line + wrapped(text, text_column, columns) + "\n";
}

class Help {
 public:
  Help(const CLI::App& app, std::size_t columns) : app_(app), columns_(columns) {}

  std::string all() {
    return page([](const CLI::Option&) { return true; }, "");
  }

  std::string usual() {
    const auto rare = app_.get_options([](const CLI::Option* one) { return is_rare(*one); });
    const std::string more = fmt::format(
        "{} more keys: --help all, or --help SECTION, of {}; --help KEY is about one. Where auto "
        "is a value, the program chooses; 0 means off.",
        rare.size(), join(sections_of(app_), ", "));
    return page([](const CLI::Option& option) { return !is_rare(option); },
                rare.empty() ? "" : "\n" + wrapped(more, 0, columns_) + "\n");
  }

  /// Empty: there is no such section or option.
  std::string about(const std::string& topic) {
    return options([&](const CLI::Option& option) {
      const auto& names = option.get_lnames();
      return section_of(option) == topic || std::ranges::find(names, topic) != names.end();
    });
  }

 private:
  template <class Shown>
  std::string page(Shown shown, const std::string& more) {
    std::string text = wrapped(app_.get_description(), 0, columns_) + "\n" + usage();
    text += options(shown);
    const auto commands = app_.get_subcommands([](const CLI::App*) { return true; });
    if (!commands.empty()) text += "\nCommands:\n";
    for (const CLI::App* command : commands)
      text += line_of(command->get_name(), command->get_description(), columns_);
    const bool starts_ranks = app_.get_parent() == nullptr || !sections_of(app_).empty();
    return text + more +
           (starts_ranks ? "\n" + wrapped(app_.get_footer(), 0, columns_) + "\n" : "");
  }

  std::string usage() const {
    std::string line = "Usage: ";
    std::string path = app_.get_name();
    for (const CLI::App* above = app_.get_parent(); above != nullptr; above = above->get_parent())
      path = above->get_name() + " " + path;
    line += path + " [OPTIONS]";
    for (const CLI::Option* one : positionals()) {
      const bool many = one->get_expected_max() >= CLI::detail::expected_max_vector_size;
      const std::string name = one->get_name(true) + (many ? "..." : "");
      line += one->get_required() ? " " + name : " [" + name + "]";
    }
    if (!app_.get_subcommands([](const CLI::App*) { return true; }).empty()) line += " [COMMAND]";
    return line + "\n";
  }

  std::vector<const CLI::Option*> positionals() const {
    return app_.get_options([](const CLI::Option* one) { return one->get_positional(); });
  }

  template <class Shown>
  std::string options(Shown shown) const {
    std::string text =
        part("", [&](const CLI::Option& one) { return one.get_positional() && shown(one); });
    const auto add = [&](const std::string& section) {
      text += part(section, [&](const CLI::Option& one) {
        return !one.get_positional() && section_of(one) == section && shown(one);
      });
    };
    add(own_options);
    for (const std::string& section : sections_of(app_)) add(section);
    return text;
  }

  template <class Shown>
  std::string part(const std::string& heading, Shown shown) const {
    std::string text;
    for (const CLI::Option* one : app_.get_options())
      if (shown(*one)) text += line_of(name_of(*one), text_of(*one), columns_);
    if (text.empty()) return "";
    return "\n" + (heading.empty() ? "" : heading + ":\n") + text;
  }

  const CLI::App& app_;
  std::size_t columns_;
};

}  // namespace

std::string section_name(const std::string& section, bool usual) {
  return section + (usual ? "" : "/");
}

std::string help_of(const CLI::App& app, const std::string& topic, std::size_t columns) {
  Help help(app, columns);
  if (topic.empty()) return help.usual();
  if (topic == "all") return help.all();
  std::string text = help.about(topic);
  std::vector<std::string> topics = sections_of(app);
  topics.emplace_back("all");
  require(!text.empty(), fmt::format("--help {}: there is no section or option of this name (the "
                                     "sections are {})",
                                     topic, join(topics, ", ")));
  return text.substr(1);
}

}  // namespace lockstep::app
