#include "lockstep/config/toml.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"

namespace lockstep::config {

/// Thrown where the parser would end the program: "[}" makes its own assertion fail.
struct ParserGaveUp {};
[[noreturn]] inline void give_up_parsing() { throw ParserGaveUp(); }

}  // namespace lockstep::config

#undef NDEBUG
#define TOML_ASSERT(holds) ((holds) ? void() : ::lockstep::config::give_up_parsing())
// No key needs a list in a list. The limit bounds the stack that a hostile text can use.
#define TOML_MAX_NESTED_VALUES 8
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace lockstep::config {
namespace {

/// The escapes of one letter, and the characters that they are.
constexpr std::string_view escape_letters = "\"\\btnfr", escaped_characters = "\"\\\b\t\n\f\r";

bool control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }
bool digit(char c) { return c >= '0' && c <= '9'; }

/// How a substitute for a byte begins: characters for private use, from U+10FF80 on.
constexpr std::string_view stand_in_begins = "\xF4\x8F";

bool is_stand_in(std::string_view text) {
  return text.size() >= 4 && text.starts_with(stand_in_begins) &&
         (text[2] == '\xBE' || text[2] == '\xBF');
}

/// Each byte that is not ASCII becomes a character for private use; as_bytes() undoes it. TOML is
/// UTF-8, but a path may have any bytes; and toml++ 3.3 rejects letters like U+00E4.
std::string as_utf8(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte-order mark
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      safe += c;
      continue;
    }
    safe += stand_in_begins;
    safe += byte < 0xC0 ? '\xBE' : '\xBF';
    safe += static_cast<char>(0x80 | (byte & 0x3F));
  }
  return safe;
}

std::string as_bytes(std::string_view safe) {
  std::string text;
  while (!safe.empty()) {
    const bool one = is_stand_in(safe);
    text += one ? static_cast<char>((safe[2] == '\xBE' ? 0x80 : 0xC0) | (safe[3] & 0x3F)) : safe[0];
    safe.remove_prefix(one ? 4 : 1);
  }
  return text;
}

/// The begin and end of the line with this number, from 1.
std::pair<std::size_t, std::size_t> find_line(std::string_view text, std::size_t number) {
  std::size_t begin = 0;
  for (; number > 1 && begin < text.size(); --number)
    begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  return {begin, std::min(text.find('\n', begin), text.size())};
}

[[noreturn]] void fail(const std::string& origin, std::size_t line, std::string_view what) {
  throw InputError(fmt::format("{}, line {}: {}", origin, line, what));
}

/// The parser nests a table for each dot, and uses stack for each table.
void refuse_deep_keys(std::string_view text, const std::string& origin) {
  constexpr std::ptrdiff_t most_dots = 256;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::string_view one = text.substr(0, text.find('\n'));
    if (std::count(one.begin(), one.end(), '.') > most_dots)
      fail(origin, line, fmt::format("more than {} dots in one line", most_dots));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
  }
}

[[noreturn]] void explain(const toml::parse_error& error, std::string_view text,
                          const std::string& origin) {
  const std::size_t number = error.source().begin.line;
  const auto [begin, end] = find_line(text, number);
  std::string line = as_bytes(text.substr(begin, end - begin));
  while (line.ends_with('\r') || line.ends_with(' ')) line.pop_back();
  constexpr std::size_t longest = 60;
  if (line.size() > longest) line = line.substr(0, longest) + "...";
  std::string what = as_bytes(error.description());
  if (what.starts_with('E')) what[0] = 'e';
  const bool bare = what.find("boolean") != what.npos || what.find("value type") != what.npos;
  fail(origin, number,
       fmt::format("{}{}{}", line.empty() ? "" : fmt::format("'{}': ", line), what,
                   bare ? "; a text needs quotes" : ""));
}

bool gives_up(std::string_view text) {
  try {
    static_cast<void>(toml::parse(text));
  } catch (const toml::parse_error&) {
    return false;
  } catch (const ParserGaveUp&) {
    return true;
  }
  return false;
}

/// Fails with the line where the parser gave up: the last line of the shortest beginning that
/// fails.
[[noreturn]] void explain_giving_up(std::string_view text, const std::string& origin) {
  std::size_t low = 1;
  auto high = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    gives_up(text.substr(0, find_line(text, middle).second)) ? high = middle : low = middle + 1;
  }
  fail(origin, low, "a key was expected: letters, digits, '-' and '_', or in quotes");
}

/// A text in the form that the parser accepts.
class Parsed {
 public:
  Parsed(std::string_view text, const std::string& origin) : text_(as_utf8(text)) {
    refuse_deep_keys(text_, origin);
    constexpr std::size_t most_wide = 64;
    for (;;) {
      try {
        root_ = toml::parse(std::string_view(text_));
        return;
      } catch (const toml::parse_error& error) {
        if (wide_.size() < most_wide && quote_wide_number(error.source().begin)) continue;
        explain(error, text_, origin);
      } catch (const ParserGaveUp&) {
        explain_giving_up(text_, origin);
      }
    }
  }

  const toml::table& root() const { return root_; }

  /// Empty: the node is not a number.
  std::optional<std::string> number(const toml::node& node) const {
    if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
    if (const auto* real = node.as_floating_point()) return fmt::format("{:#}", real->get());
    const auto* text = node.as_string();
    const std::pair quoted{std::size_t{node.source().begin.line}, text ? text->get() : ""};
    if (text && std::find(wide_.begin(), wide_.end(), quoted) != wide_.end()) return text->get();
    return std::nullopt;
  }

 private:
  /// TOML's integers end at 2^63 - 1, seeds at 2^64 - 1: puts the number that ends at `position`
  /// in quotes if it lies between them.
  bool quote_wide_number(const toml::source_position& position) {
    const auto [begin, end] = find_line(text_, position.line);
    const std::size_t stop = std::min<std::size_t>(begin + position.column - 1, end);
    std::size_t start = stop;
    while (start > begin && digit(text_[start - 1])) --start;
    std::uint64_t value = 0;
    if (start == begin ||
        std::string_view(" \t=,[").find(text_[start - 1]) == std::string_view::npos)
      return false;
    const char* last = text_.data() + stop;
    const auto read = std::from_chars(text_.data() + start, last, value);
    if (read.ec != std::errc() || read.ptr != last) return false;
    if (value <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return false;
    const std::string digits = text_.substr(start, stop - start);
    text_.replace(start, digits.size(), '"' + digits + '"');
    wide_.emplace_back(position.line, digits);
    return true;
  }

  std::string text_;
  std::vector<std::pair<std::size_t, std::string>> wide_;  ///< line and digits
  toml::table root_;
};

/// Its numbers, separated by commas; empty if it has anything else.
std::optional<std::string> list_of_numbers(const toml::array& array, const Parsed& parsed) {
  std::string items;
  for (const toml::node& item : array) {
    const auto number = parsed.number(item);
    if (!number) return std::nullopt;
    if (!items.empty()) items += ',';
    items += *number;
  }
  return items;
}

/// Its texts, each on a line; empty if it has anything else, or none.
std::string list_of_texts(const toml::array& array) {
  std::string items;
  for (const toml::node& item : array) {
    const auto* text = item.as_string();
    if (text == nullptr || text->get().find('\n') != std::string::npos) return "";
    if (!items.empty()) items += '\n';
    items += as_bytes(text->get());
  }
  return items;
}

void read_value(const toml::node& node, const Parsed& parsed, TomlEntry& entry) {
  entry.kind = TomlKind::other;
  if (const auto number = parsed.number(node)) {
    entry.kind = TomlKind::number;
    entry.value = *number;
  } else if (const auto* boolean = node.as_boolean()) {
    entry.kind = TomlKind::boolean;
    entry.value = boolean->get() ? "true" : "false";
  } else if (const auto* text = node.as_string()) {
    entry.kind = TomlKind::text;
    entry.value = as_bytes(text->get());
  } else if (const auto* array = node.as_array()) {
    if (const auto items = list_of_numbers(*array, parsed)) {
      entry.kind = TomlKind::list;
      entry.value = *items;
    } else if (std::string texts = list_of_texts(*array); !texts.empty()) {
      entry.kind = TomlKind::texts;
      entry.value = std::move(texts);
    }
  } else if (node.is_table()) {
    entry.kind = TomlKind::table;
  }
}

void flatten(const toml::table& table, const std::string& prefix, const Parsed& parsed,
             std::vector<TomlEntry>& entries) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + as_bytes(key.str());
    const toml::table* inner = node.as_table();
    if (inner != nullptr && !inner->empty()) {
      flatten(*inner, name + '.', parsed, entries);
      continue;
    }
    TomlEntry& entry = entries.emplace_back();
    entry.key = name;
    entry.line = key.source().begin.line;
    read_value(node, parsed, entry);
  }
}

}  // namespace

std::vector<TomlEntry> read_toml(std::string_view text, const std::string& origin) {
  const Parsed parsed(text, origin);
  std::vector<TomlEntry> entries;
  flatten(parsed.root(), "", parsed, entries);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TomlEntry& a, const TomlEntry& b) { return a.line < b.line; });
  std::unordered_map<std::string, std::size_t> lines;
  for (const TomlEntry& entry : entries) {
    const auto [earlier, is_new] = lines.emplace(entry.key, entry.line);  // "a.b" = 1 is a.b = 1
    if (!is_new)
      fail(origin, entry.line,
           fmt::format("'{}' is already in line {}", entry.key, earlier->second));
    if (entry.kind == TomlKind::text && entry.value.find('\0') != std::string::npos)
      fail(origin, entry.line, fmt::format("{}: a text cannot hold the character 0", entry.key));
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

}  // namespace lockstep::config
