#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::app {

/// The words of a command line, in which "help", "help COMMAND" and "version" became --help and
/// --version. Throws InputError naming a command that does not exist, and one that is similar.
std::vector<std::string> command_words(const CLI::App& root, int argc, char** argv);

/// The words in the order and form that CLI11 takes: reversed, and "--key=" as "--key" and an empty
/// text, because CLI11 would take the next word for the value.
std::vector<std::string> for_parser(const std::vector<std::string>& words);

/// What to say about words that no option took: the first of them, and which option is similar.
/// `root` has parsed `words`.
std::string describe_unexpected(const CLI::App& root, const std::vector<std::string>& words);

}  // namespace lockstep::app
