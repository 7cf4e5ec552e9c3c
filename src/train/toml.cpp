#include "lockstep/train/toml.hpp"

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"

namespace lockstep::train {
namespace {

bool blank(char c) { return c == ' ' || c == '\t'; }
bool bare(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; }

/// One line and how far it has been read.
class Line {
 public:
  Line(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}: {}", where_, what));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char take() { return at_ < text_.size() ? text_[at_++] : '\0'; }
  void skip_blanks() {
    while (blank(peek())) ++at_;
  }
  bool accept(char c) {
    skip_blanks();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool at_end() {
    skip_blanks();
    return at_ >= text_.size() || peek() == '#';
  }
  void expect_end() {
    if (!at_end()) fail(fmt::format("'{}' stands behind the value", text_.substr(at_)));
  }

  /// "optim.lr": bare keys joined by dots.
  std::string key() {
    std::string name;
    do {
      skip_blanks();
      if (!name.empty()) name += '.';
      const std::size_t begin = at_;
      while (bare(peek())) ++at_;
      if (at_ == begin) fail("a key was expected: letters, digits, '-' and '_', joined by '.'");
      name += text_.substr(begin, at_ - begin);
    } while (accept('.'));
    return name;
  }

  std::string quoted() {
    const char quote = take();
    std::string value;
    for (;;) {
      if (at_ >= text_.size()) fail("the string has no end");
      char c = take();
      if (c == quote) return value;
      if (quote == '"' && c == '\\') c = escaped();
      value += c;
    }
  }

  /// A run of characters that can stand in a number or a boolean.
  std::string word() {
    skip_blanks();
    const std::size_t begin = at_;
    while (bare(peek()) || peek() == '.' || peek() == '+') ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

 private:
  char escaped() {
    switch (take()) {
      case '"':
        return '"';
      case '\\':
        return '\\';
      case 't':
        return '\t';
      default:
        fail("only \\\", \\\\ and \\t may stand behind a backslash in a string");
    }
  }

  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0;
};

bool looks_like_number(const std::string& word) {
  return !word.empty() && (std::isdigit(static_cast<unsigned char>(word[0])) || word[0] == '-' ||
                           word[0] == '+' || word[0] == '.');
}

std::string number(Line& line) {
  std::string word = line.word();
  if (!looks_like_number(word))
    line.fail(fmt::format("'{}' is no value; texts stand in quotes", word));
  return word;
}

void read_value(Line& line, TomlEntry& entry) {
  line.skip_blanks();
  if (line.peek() == '"' || line.peek() == '\'') {
    entry.kind = TomlKind::text;
    entry.value = line.quoted();
  } else if (line.accept('[')) {
    entry.kind = TomlKind::list;
    while (!line.accept(']')) {
      if (!entry.value.empty()) entry.value += ',';
      entry.value += number(line);
      if (line.accept(',')) continue;
      if (!line.accept(']')) line.fail("a list ends with ']' on the same line");
      break;
    }
  } else if (line.at_end()) {
    line.fail(fmt::format("key '{}' has no value", entry.key));
  } else {
    entry.kind = TomlKind::boolean;
    entry.value = line.word();
    if (entry.value == "true" || entry.value == "false") return;
    entry.kind = TomlKind::number;
    if (!looks_like_number(entry.value))
      line.fail(
          fmt::format("the value of '{}' is neither a number, true or false, nor a text in "
                      "quotes",
                      entry.key));
  }
}

}  // namespace

std::vector<TomlEntry> read_toml(std::string_view text, const std::string& origin) {
  std::vector<TomlEntry> entries;
  std::unordered_map<std::string, std::size_t> line_of;
  std::string section;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view raw = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!raw.empty() && raw.back() == '\r') raw.remove_suffix(1);
    Line line(raw, fmt::format("{}, line {}", origin, ++number));
    if (line.at_end()) continue;
    if (line.accept('[')) {
      section = line.key() + '.';
      if (!line.accept(']')) line.fail("a section is written [name]");
      line.expect_end();
      continue;
    }
    TomlEntry entry;
    entry.line = number;
    entry.key = section + line.key();
    if (!line.accept('=')) line.fail(fmt::format("'=' is missing behind '{}'", entry.key));
    read_value(line, entry);
    line.expect_end();
    const auto [earlier, is_new] = line_of.emplace(entry.key, number);
    if (!is_new)
      line.fail(fmt::format("'{}' already stands in line {}", entry.key, earlier->second));
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string toml_quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace lockstep::train
