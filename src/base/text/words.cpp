#include "lockstep/base/text/words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <utility>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/base/text/json_text.hpp"

namespace lockstep {

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(plain) == text.npos) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string join(std::span<const std::string> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const std::uint64_t> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const unsigned long long> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const int> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const float> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::string join(std::span<const double> list, std::string_view between) {
  return fmt::format("{}", fmt::join(list, between));
}

std::vector<std::string> listed(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream text(list);
  for (std::string name; std::getline(text, name, ',');) names.push_back(name);
  return names;
}

std::string counted(std::size_t count, std::string_view noun) {
  const bool hisses = noun.ends_with('s') || noun.ends_with("tch");
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : hisses ? "es" : "s");
}

std::string valid_utf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(json_text(Json(text))).get<std::string>();
}

bool same_text(const std::string& a, const std::string& b) {
  return a == b || valid_utf8(a) == valid_utf8(b);
}

namespace {

unsigned at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
}

bool continues(unsigned byte) { return byte >= 0x80 && byte < 0xC0; }

/// The bytes of the character at `i`; 0 where none is, or one that controls a terminal.
std::size_t shown(std::string_view text, std::size_t i) {
  const unsigned first = at(text, i), second = at(text, i + 1);
  if (first < 0x80) return first >= ' ' && first != 0x7F ? 1 : 0;
  if (first < 0xC2 || first > 0xF4 || !continues(second)) return 0;
  if (first < 0xE0) return first == 0xC2 && second < 0xA0 ? 0 : 2;  // U+0080 to U+009F
  if (!continues(at(text, i + 2))) return 0;
  if (first < 0xF0)
    return (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ? 0 : 3;
  if (!continues(at(text, i + 3))) return 0;
  return (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F) ? 0 : 4;
}

std::string visible(std::string_view text, bool lines) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const std::size_t count = lines && (c == '\n' || c == '\t') ? 1 : shown(text, i);
    result += count > 0   ? std::string(text.substr(i, count))
              : c == '\n' ? "\\n"
              : c == '\t' ? "\\t"
                          : fmt::format("\\x{:02x}", at(text, i));
    i += count > 0 ? count : 1;
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return visible(text, true); }
std::string one_line(std::string_view text) { return visible(text, false); }

std::string as_bytes(std::string_view text) {
  std::string result;
  for (const char c : one_line(text))
    result += at({&c, 1}, 0) < 0x80 ? std::string(1, c) : fmt::format("\\x{:02x}", at({&c, 1}, 0));
  return result;
}

InputError unknown_choice(std::string_view text, std::string_view what,
                          const std::vector<std::string>& names) {
  const std::string hint = did_you_mean(text, names);
  return InputError(fmt::format("{}: '{}' is not known{} {}", what, text,
                                hint.empty() ? "; choose" : hint + " Choose", join(names, ", ")));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::size_t most_typing_errors(std::size_t letters) {
  return std::min<std::size_t>(3, (letters + 2) / 3);
}

std::string plain_form(std::string_view word) {
  std::string plain(word);
  for (char& c : plain)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  const std::string plain = plain_form(word);
  std::size_t smallest = most_typing_errors(plain.size()) + 1;
  std::string best;
  for (const std::string& one : known) {
    const std::size_t distance = edit_distance(plain, plain_form(one));
    if (distance >= smallest || distance >= one.size()) continue;
    smallest = distance;
    best = one;
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string best = nearest(word, known);
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

}  // namespace lockstep
