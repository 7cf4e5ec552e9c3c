#include "cluster/lint/program_starts.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace lockstep::cluster {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> found;
  for (std::string word; words >> word;) found.push_back(word);
  return found;
}

/// "LAUNCH" of $LAUNCH, ${LAUNCH} and ${LAUNCH[@]}; empty for other texts.
std::string variable_of(std::string_view word) {
  if (!word.starts_with('$')) return "";
  word.remove_prefix(1);
  if (word.starts_with('{')) {
    if (!word.ends_with('}')) return "";
    word = word.substr(1, word.size() - 2);
    if (word.ends_with("[@]") || word.ends_with("[*]")) word.remove_suffix(3);
  }
  return is_name(word) ? std::string(word) : "";
}

/// Where the body that begins at `first` ends: at a command "}", or the last one.
std::size_t end_of_body(const std::vector<ShellCommand>& commands, std::size_t first) {
  for (std::size_t i = first; i < commands.size(); ++i)
    if (i > first && commands[i].words.front() == "}") return i;
  return commands.size();
}

/// name() { ... } or function name { ... }
void note_function(const std::vector<ShellCommand>& commands, std::size_t at, ShellNames& names) {
  const ShellCommand& one = commands[at];
  if (one.words.front() == "function" && one.words.size() > 1) {
    const std::size_t first = one.words.size() > 2 ? at : at + 1;
    names.functions[one.words[1]] = {first, end_of_body(commands, first)};
    return;
  }
  const bool opens = one.words.size() == 1 && one.end == "(" && is_name(one.words[0]);
  if (!opens || at + 1 >= commands.size() || commands[at + 1].words.front() != "{") return;
  names.functions[one.words[0]] = {at + 1, end_of_body(commands, at + 1)};
}

void note_values(const std::vector<ShellCommand>& commands, std::size_t at, ShellNames& names) {
  for (const std::string& word : commands[at].words) {
    if (word == "export" || word == "local" || word == "readonly") continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || !is_name(std::string_view(word).substr(0, equals))) return;
    const std::string name = word.substr(0, equals);
    if (equals + 1 < word.size() || commands[at].end != "(") {
      names.values[name] = split(word.substr(equals + 1));
      continue;
    }
    std::vector<std::string> list;  // of an array, which may have several lines
    for (std::size_t i = at + 1; i < commands.size(); ++i) {
      list.insert(list.end(), commands[i].words.begin(), commands[i].words.end());
      if (commands[i].end != "\n") break;
    }
    names.values[name] = std::move(list);
  }
}

}  // namespace

bool ShellNames::in_function(std::size_t command) const {
  return std::any_of(functions.begin(), functions.end(), [command](const auto& one) {
    return command >= one.second.first && command < one.second.end;
  });
}

ShellNames names_in(const std::vector<ShellCommand>& commands) {
  ShellNames names;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    note_function(commands, i, names);
    note_values(commands, i, names);
  }
  return names;
}

std::vector<std::string> with_launcher(std::vector<std::string> words, const ShellNames& names) {
  const std::size_t at = program_in(words);
  if (at == words.size()) return words;
  const auto value = names.values.find(variable_of(words[at]));
  if (value == names.values.end() || value->second.empty()) return words;
  const auto place = words.begin() + static_cast<std::ptrdiff_t>(at);
  words.insert(words.erase(place), value->second.begin(), value->second.end());
  return words;
}

std::vector<std::string> with_arguments(const std::vector<std::string>& words,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  for (const std::string& word : words) {
    const std::string name = word.starts_with("${") && word.ends_with('}')
                                 ? word.substr(2, word.size() - 3)
                                 : (word.starts_with('$') ? word.substr(1) : "");
    if (name == "@" || name == "*")
      all.insert(all.end(), arguments.begin(), arguments.end());
    else if (name.size() == 1 && name[0] >= '1' && name[0] <= '9' &&
             static_cast<std::size_t>(name[0] - '1') < arguments.size())
      all.push_back(arguments[static_cast<std::size_t>(name[0] - '1')]);
    else
      all.push_back(word);
  }
  return all;
}

}  // namespace lockstep::cluster
