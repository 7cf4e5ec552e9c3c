#include "pack/index/class_names.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/edit_distance.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/printable.hpp"

namespace lockstep::pack {
namespace {

/// One letter as it is drawn: a code point, and those that are drawn onto it or into it.
struct Letter {
  std::string_view bytes;
  bool several = false;  ///< code points
  bool operator==(const Letter& other) const { return bytes == other.bytes; }
};

std::size_t code_point_bytes(unsigned char first) {
  return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/// Combining marks (U+0300 to U+036F), the voice marks of kana, and the vowels and last consonants
/// of decomposed Hangul (U+1160 to U+11FF).
bool joins_before(std::string_view rest) {
  const auto byte = [&](std::size_t at) {
    return at < rest.size() ? static_cast<unsigned char>(rest[at]) : 0;
  };
  if (byte(0) == 0xCC || (byte(0) == 0xCD && byte(1) < 0xB0)) return true;
  if (byte(0) == 0xE3 && byte(1) == 0x82 && (byte(2) == 0x99 || byte(2) == 0x9A)) return true;
  return byte(0) == 0xE1 &&
         ((byte(1) == 0x85 && byte(2) >= 0xA0) || byte(1) == 0x86 || byte(1) == 0x87);
}

/// The length of the blank that `rest` begins with: also one that is not broken (U+00A0), or has no
/// width (U+200B, U+FEFF).
std::size_t blank_bytes(std::string_view rest) {
  for (const std::string_view blank : {" ", "\t", "\xC2\xA0", "\xE2\x80\x8B", "\xEF\xBB\xBF"})
    if (rest.starts_with(blank)) return blank.size();
  return 0;
}

/// The letters, with one blank for each run of blanks, and none at the ends.
std::vector<Letter> letters_of(std::string_view name) {
  std::vector<Letter> letters;
  bool blank = false;
  for (std::size_t at = 0; at < name.size();) {
    const std::string_view rest = name.substr(at);
    if (const std::size_t bytes = blank_bytes(rest); bytes > 0) {
      blank = true;
      at += bytes;
      continue;
    }
    if (blank && !letters.empty()) letters.push_back({" ", false});
    blank = false;
    const std::size_t bytes =
        std::min(code_point_bytes(static_cast<unsigned char>(rest[0])), rest.size());
    if (!letters.empty() && letters.back().bytes != " " && joins_before(rest))
      letters.back() = {{letters.back().bytes.data(), letters.back().bytes.size() + bytes}, true};
    else
      letters.push_back({rest.substr(0, bytes), false});
    at += bytes;
  }
  return letters;
}

/// Which letter a character of several code points is would take Unicode's tables to say. Where the
/// names are equal otherwise, there is no doubt.
bool may_be_same(const Letter& a, const Letter& b) {
  return a == b || (a.several != b.several && a.bytes[0] != ' ' && b.bytes[0] != ' ' &&
                    (a.several ? b : a).bytes.size() > 1);
}

bool may_be_same(const std::vector<Letter>& a, const std::vector<Letter>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Letter& x, const Letter& y) { return may_be_same(x, y); });
}

/// The same for names that look alike.
std::string key_of(const std::vector<Letter>& letters) {
  std::string key;
  for (const Letter& letter : letters)
    key += letter.bytes.size() > 1 ? std::string_view("\xFF") : letter.bytes;
  return key;
}

/// A name that may look like another one.
bool is_odd(std::string_view name, const std::vector<Letter>& letters) {
  std::string plain;
  for (const Letter& letter : letters) {
    if (letter.several) return true;
    plain += letter.bytes;
  }
  return plain != name;
}

std::string loose_form(std::string_view name) {
  std::string plain = plain_form(name);
  std::replace(plain.begin(), plain.end(), ' ', '-');
  return plain;
}

}  // namespace

bool look_alike(std::string_view a, std::string_view b) {
  return a != b && may_be_same(letters_of(a), letters_of(b));
}

std::string check_names(const std::vector<std::string>& names, const PlaceOfName& place) {
  struct Drawn {
    std::vector<std::string_view> all, odd;  ///< odd: with blanks or letters of several characters
  };
  std::map<std::string, Drawn> drawn;
  std::map<std::string, std::string_view> loose;
  std::string remark;
  for (const std::string& name : names) {
    require(std::none_of(name.begin(), name.end(),
                         [](unsigned char c) { return c < ' ' || c == 0x7F; }),
            fmt::format("{}: the class \"{}\" has a control character in its name: rename it",
                        place(name), one_line(name)));
    const std::vector<Letter> letters = letters_of(name);
    require(!letters.empty(), fmt::format("{}: a class's name is only blanks", place(name)));
    const bool odd = is_odd(name, letters);
    Drawn& before = drawn[key_of(letters)];
    for (const std::string_view other : odd ? before.all : before.odd)
      require(!look_alike(name, other),
              fmt::format("{}: two classes look alike, \"{}\" and \"{}\" ({}): their bytes are "
                          "\"{}\" and \"{}\"; give them one name, or names that differ",
                          place(name), name, other, place(other), as_bytes(name), as_bytes(other)));
    before.all.push_back(name);
    if (odd) before.odd.push_back(name);
    const auto [other, is_new] = loose.emplace(loose_form(name), name);
    if (!is_new && remark.empty())
      remark = fmt::format(
          "the classes \"{}\" and \"{}\" are two, though their names differ only in case, or in "
          "blanks, '-' and '_'",
          other->second, name);
  }
  return remark;
}

std::string say_near(std::string_view name, const std::vector<std::string>& known) {
  const auto alike = std::find_if(known.begin(), known.end(),
                                  [&](const std::string& one) { return look_alike(name, one); });
  if (alike != known.end())
    return fmt::format(
        "; the class \"{}\" looks alike, but its bytes are \"{}\", and here they "
        "are \"{}\": give both one name",
        *alike, as_bytes(*alike), as_bytes(name));
  if (looks_like_number(name)) return "";
  constexpr std::size_t most = 10'000;  // more would take long to compare
  return known.size() > most ? "" : did_you_mean(name, known);
}

}  // namespace lockstep::pack
