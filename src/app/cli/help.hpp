#pragma once

#include <string>

namespace CLI {
class App;
}

namespace lockstep::app {

/// What the section of an option is called in CLI11 where only its section's help shows it.
std::string section_name(const std::string& section, bool usual);

/// A command's help: all, one section, one option; or, without a topic, what is usual. Where
/// `columns` is 0, each option is one line, so that a search finds all of it; else lines are
/// wrapped there. Throws InputError naming the sections for another topic.
std::string help_of(const CLI::App& app, const std::string& topic, std::size_t columns);

}  // namespace lockstep::app
