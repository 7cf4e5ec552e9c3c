#include "lockstep/train/toml.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::train {
namespace {

bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool bare(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; }
bool control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

std::string utf8(std::uint32_t code) {
  const auto tail = [code](unsigned shift) {
    return static_cast<char>(0x80 | ((code >> shift) & 0x3F));
  };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
}

/// The escapes of one letter, beside what they stand for.
constexpr std::string_view escape_letters = "\"\\btnfr", escaped_characters = "\"\\\b\t\n\f\r";

/// The text and how far it has been read.
class Reader {
 public:
  Reader(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte-order mark
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}, line {}: {}", origin_, line_, what));
  }
  std::size_t line() const { return line_; }
  bool at_end_of_text() const { return at_ >= text_.size(); }
  bool stands(std::string_view here) const { return text_.substr(at_).starts_with(here); }
  char peek() const { return at_end_of_text() ? '\0' : text_[at_]; }

  /// At the end of a line, in front of its comment, if any.
  bool at_end_of_line() {
    skip_blanks();
    return at_end_of_text() || peek() == '#' || stands("\n") || stands("\r\n");
  }
  /// Goes behind the end of the line that at_end_of_line() saw.
  void next_line() {
    at_ = std::min(text_.find('\n', at_), text_.size());
    if (at_end_of_text()) return;
    ++at_;
    ++line_;
  }
  void expect_end_of_line() {
    if (!at_end_of_line()) fail(fmt::format("'{}' stands behind the value", rest_of_line()));
    next_line();
  }
  bool accept(char c) {
    skip_blanks();
    if (peek() != c || at_end_of_text()) return false;
    ++at_;
    return true;
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }

  /// "optim.lr": bare or quoted keys joined by dots.
  std::string key() {
    std::string name;
    do {
      skip_blanks();
      if (!name.empty()) name += '.';
      name += peek() == '"' || peek() == '\'' ? quoted() : bare_key();
    } while (accept('.'));
    return name;
  }

  std::string quoted() {
    if (stands("\"\"\"") || stands("'''"))
      fail("a string stands on one line, between single quotation marks: \\n is a new line in it");
    const char quote = text_[at_++];
    std::string value;
    for (;;) {
      if (at_end_of_text() || stands("\n") || stands("\r\n")) fail("the string has no end");
      const char c = text_[at_++];
      if (c == quote) return value;
      if (quote == '"' && c == '\\')
        value += escaped();
      else
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
  std::string_view rest_of_line() const {
    const std::string_view rest = text_.substr(at_);
    return rest.substr(0, rest.find_first_of("\r\n"));
  }
  std::string bare_key() {
    const std::size_t begin = at_;
    while (bare(peek())) ++at_;
    if (at_ == begin)
      fail("a key was expected: letters, digits, '-' and '_', or quoted, joined by '.'");
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::string escaped() {
    const char letter = peek();
    ++at_;
    if (const auto known = escape_letters.find(letter); known != escape_letters.npos)
      return {escaped_characters[known]};
    if (letter == 'u') return character(4);
    if (letter == 'U') return character(8);
    fail("behind a backslash in a string stands one of \" \\ b t n f r, or u or U with its digits");
  }
  std::string character(std::size_t digits) {
    const std::string_view hex = text_.substr(at_, digits);
    std::uint32_t code = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (hex.size() < digits || error != std::errc() || end != hex.data() + digits)
      fail(fmt::format("{} hexadecimal digits were expected in the string", digits));
    if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail(fmt::format("'{}' is the number of no character", hex));
    at_ += digits;
    return utf8(code);
  }

  std::string_view text_;
  const std::string& origin_;
  std::size_t at_ = 0, line_ = 1;
};

bool looks_like_number(const std::string& word) {
  return !word.empty() && (digit(word[0]) || word[0] == '-' || word[0] == '+' || word[0] == '.');
}

/// The number in the one form that keys take: "+1_000" is "1000".
std::string plain_number(const Reader& reader, const std::string& word) {
  std::string plain;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '_') {
      plain += word[i];
      continue;
    }
    if (i == 0 || i + 1 == word.size() || !digit(word[i - 1]) || !digit(word[i + 1]))
      reader.fail(fmt::format("'{}': '_' stands between digits only", word));
  }
  if (plain.size() > 1 && plain[0] == '+' && plain[1] != '-') plain.erase(0, 1);
  return plain;
}

std::string number(Reader& reader) {
  if (reader.peek() == '"' || reader.peek() == '\'') reader.fail("a list holds numbers only");
  if (reader.peek() == '[') reader.fail("a list holds numbers only, no lists");
  const std::string word = reader.word();
  if (!looks_like_number(word))
    reader.fail(fmt::format("'{}' is no value; texts stand in quotes", word));
  return plain_number(reader, word);
}

/// To the next value of a list, or its end, over ends of lines and comments.
void skip_to_item(Reader& reader, std::size_t began) {
  while (reader.at_end_of_line()) {
    if (reader.at_end_of_text())
      reader.fail(fmt::format("the list that begins in line {} has no ']'", began));
    reader.next_line();
  }
}

std::string list(Reader& reader) {
  const std::size_t began = reader.line();
  std::string items;
  for (;;) {
    skip_to_item(reader, began);
    if (reader.accept(']')) return items;
    if (!items.empty()) items += ',';
    items += number(reader);
    skip_to_item(reader, began);
    if (reader.accept(']')) return items;
    if (!reader.accept(','))
      reader.fail(
          fmt::format("the list that begins in line {} needs a ',' or its ']' here", began));
  }
}

void read_value(Reader& reader, TomlEntry& entry) {
  if (reader.at_end_of_line()) reader.fail(fmt::format("key '{}' has no value", entry.key));
  if (reader.peek() == '"' || reader.peek() == '\'') {
    entry.kind = TomlKind::text;
    entry.value = reader.quoted();
    return;
  }
  if (reader.accept('[')) {
    entry.kind = TomlKind::list;
    entry.value = list(reader);
    return;
  }
  if (reader.peek() == '{')
    reader.fail(
        fmt::format("'{0}' is an inline table, which is not understood: write [{0}] on a "
                    "line, and its keys on lines below",
                    entry.key));
  entry.kind = TomlKind::boolean;
  entry.value = reader.word();
  if (entry.value == "true" || entry.value == "false") return;
  entry.kind = TomlKind::number;
  if (!looks_like_number(entry.value))
    reader.fail(
        fmt::format("the value of '{}' is neither a number, true or false, nor a text in "
                    "quotes",
                    entry.key));
  entry.value = plain_number(reader, entry.value);
}

/// The lines in which names stand, each of which stands once.
class Once {
 public:
  void add(const Reader& reader, const std::string& name) {
    const auto [earlier, is_new] = line_of_.emplace(name, reader.line());
    if (!is_new) reader.fail(fmt::format("'{}' already stands in line {}", name, earlier->second));
  }

 private:
  std::unordered_map<std::string, std::size_t> line_of_;
};

/// Behind its '['. Returns what stands in front of the section's keys.
std::string read_section(Reader& reader, Once& sections) {
  if (reader.peek() == '[')
    reader.fail("arrays of tables are not understood; a section is written [name]");
  const std::string name = reader.key();
  if (!reader.accept(']')) reader.fail("a section is written [name]");
  sections.add(reader, fmt::format("[{}]", name));
  return name + '.';
}

}  // namespace

std::vector<TomlEntry> read_toml(std::string_view text, const std::string& origin) {
  std::vector<TomlEntry> entries;
  Once keys, sections;
  std::string section;
  for (Reader reader(text, origin); !reader.at_end_of_text();) {
    if (reader.at_end_of_line()) {
      reader.next_line();
      continue;
    }
    if (reader.accept('[')) {
      section = read_section(reader, sections);
      reader.expect_end_of_line();
      continue;
    }
    TomlEntry entry;
    entry.line = reader.line();
    entry.key = section + reader.key();
    keys.add(reader, entry.key);
    if (!reader.accept('=')) reader.fail(fmt::format("'=' is missing behind '{}'", entry.key));
    read_value(reader, entry);
    reader.expect_end_of_line();
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string toml_quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (const auto known = escaped_characters.find(c); known != escaped_characters.npos)
      quoted += {'\\', escape_letters[known]};
    else if (control(c))
      quoted += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    else
      quoted += c;
  }
  return quoted + '"';
}

}  // namespace lockstep::train
