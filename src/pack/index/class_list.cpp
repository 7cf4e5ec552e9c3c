#include "pack/index/class_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

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

namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

constexpr std::size_t most_classes = std::size_t{1} << 20;

Names lines_of(const fs::path& path) {
  Names names;
  std::istringstream lines(read_text(path));
  std::size_t number = 0, empty = 0;
  for (std::string line; std::getline(lines, line);) {
    if (++number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);  // of UTF-8
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
      line.pop_back();
    line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty()) {
      empty = empty > 0 ? empty : number;
      continue;
    }
    require(empty == 0, fmt::format("{}, line {}: is empty, but names follow: labels that are "
                                    "numbers count the lines",
                                    path.string(), empty));
    names.push_back(line);
  }
  require(!names.empty() && names.size() <= most_classes,
          fmt::format("{}: expected 1 to {} class names, found {}", path.string(), most_classes,
                      names.size()));
  Names sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    throw InputError(fmt::format("{}: names a class twice: {}", path.string(), *twice));
  return names;
}

/// A label, and the index that has it.
struct GivenLabel {
  const IndexFile& index;
  std::size_t label;
  const std::string& name() const { return index.classes()[label]; }
  std::string place() const { return index.place_of(label); }
  std::string text() const { return fmt::format("{}: the label \"{}\"", place(), name()); }
};

/// True if all are whole numbers. Where names list them, they may be anything. Else numbers are
/// never taken for names: -1 usually means "no label", and sorted as texts 10 comes before 2.
bool are_whole_numbers(const std::vector<IndexFile>& indexes, bool named) {
  std::optional<GivenLabel> whole, other, word;
  for (const IndexFile& index : indexes)
    for (std::size_t label = 0; label < index.classes().size(); ++label) {
      const std::string& text = index.classes()[label];
      auto& kind = whole_number<std::size_t>(text) ? whole : looks_like_number(text) ? other : word;
      if (!kind) kind.emplace(GivenLabel{index, label});
    }
  if (named || (whole && !other && !word)) return !other && !word;
  if (other)
    throw InputError(other->text() +
                     " is a number, but not a whole one from 0; leave out images that have no "
                     "label");
  if (whole && word)
    throw InputError(fmt::format(
        "{} is a number, but \"{}\" ({}) is a word; if both are names of classes, list all names "
        "in a file (--class-names)",
        whole->text(), word->name(), word->place()));
  return false;
}

/// Folder names are class names, also when they are 1, 2, 3.
bool are_numbers(const std::vector<IndexFile>& indexes, bool named) {
  for (const IndexFile& index : indexes)
    require(index.labels_are_given() == indexes[0].labels_are_given(),
            fmt::format("{} and {}: one has labels, the other only class folders",
                        indexes[0].origin().string(), index.origin().string()));
  return indexes[0].labels_are_given() && are_whole_numbers(indexes, named);
}

void count_numbers(const std::vector<IndexFile>& indexes, const fs::path& names_file,
                   ClassList& list) {
  const std::size_t named = list.names.size();
  for (std::size_t line = 0; line < named; ++line)
    if (const auto number = whole_number<std::size_t>(list.names[line]))
      require(*number == line,
              fmt::format("{}: its line {} is the name \"{}\", but labels that are numbers count "
                          "the lines from 0: give names that are words, or leave out --class-names",
                          names_file.string(), line + 1, list.names[line]));
  const std::size_t most = named > 0 ? named : most_classes;
  std::size_t classes = named;
  for (const IndexFile& index : indexes) {
    std::vector<std::int32_t>& labels = list.labels.emplace_back();
    for (std::size_t given = 0; given < index.classes().size(); ++given) {
      const std::string& name = index.classes()[given];
      const std::size_t label = *whole_number<std::size_t>(name);
      require(label < most,
              fmt::format("{}: label {} is out of range: {}", index.place_of(given), name,
                          named > 0 ? fmt::format("{} names {}, counted from 0",
                                                  names_file.string(), counted(named, "class"))
                                    : fmt::format("there are at most {} classes", most)));
      classes = std::max(classes, label + 1);
      labels.push_back(static_cast<std::int32_t>(label));
    }
  }
  for (std::size_t c = named; c < classes; ++c) list.names.push_back(std::to_string(c));
}

void look_up(const std::vector<IndexFile>& indexes, const fs::path& names_file, ClassList& list) {
  if (names_file.empty()) {
    for (const IndexFile& index : indexes)
      list.names.insert(list.names.end(), index.classes().begin(), index.classes().end());
    std::sort(list.names.begin(), list.names.end());
    list.names.erase(std::unique(list.names.begin(), list.names.end()), list.names.end());
    require(list.names.size() <= most_classes,
            fmt::format("{} classes; there are at most {}", list.names.size(), most_classes));
  }
  std::unordered_map<std::string_view, std::int32_t> label_of;
  for (std::size_t c = 0; c < list.names.size(); ++c)
    label_of.emplace(list.names[c], static_cast<std::int32_t>(c));
  for (const IndexFile& index : indexes) {
    std::vector<std::int32_t>& labels = list.labels.emplace_back();
    for (std::size_t given = 0; given < index.classes().size(); ++given) {
      const auto found = label_of.find(index.classes()[given]);
      require(found != label_of.end(),
              fmt::format("{} is not in {}{}", GivenLabel{index, given}.text(), names_file.string(),
                          say_near(index.classes()[given], list.names)));
      labels.push_back(found->second);
    }
  }
}

/// Which labels of the index a split has.
std::vector<bool> labels_in(const IndexFile& index, Split split) {
  std::vector<bool> there(index.classes().size());
  for (std::size_t row = 0; row < index.rows(split); ++row)
    there[static_cast<std::size_t>(index.row(split, row).label)] = true;
  return there;
}

void require_trained(const std::vector<IndexFile>& indexes, Split validation, bool named,
                     ClassList& list) {
  std::vector<bool> trained(list.names.size());
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    const std::vector<bool> there = labels_in(indexes[i], Split::training);
    for (std::size_t label = 0; label < there.size(); ++label)
      if (there[label]) trained[static_cast<std::size_t>(list.labels[i][label])] = true;
  }
  list.untrained = static_cast<std::size_t>(std::count(trained.begin(), trained.end(), false));
  for (std::size_t i = 0; i < indexes.size() && !named; ++i) {
    const std::vector<bool> there = labels_in(indexes[i], validation);
    for (std::size_t label = 0; label < there.size(); ++label) {
      if (!there[label] || trained[static_cast<std::size_t>(list.labels[i][label])]) continue;
      Names known;
      for (std::size_t c = 0; c < list.names.size(); ++c)
        if (trained[c]) known.push_back(list.names[c]);
      const GivenLabel lost{indexes[i], label};
      throw InputError(fmt::format("{}: no training class has this name{}", lost.text(),
                                   say_near(lost.name(), known)));
    }
  }
}

/// Where a class is first named.
std::string place_of(const std::vector<IndexFile>& indexes, const fs::path& names_file,
                     std::string_view name) {
  if (!names_file.empty()) return names_file.string();
  for (const IndexFile& index : indexes)
    for (std::size_t label = 0; label < index.classes().size(); ++label)
      if (index.classes()[label] == name) return index.place_of(label);
  return indexes[0].origin().string();
}

}  // namespace

ClassList merge_classes(const std::vector<IndexFile>& indexes, Split validation,
                        const fs::path& names_file) {
  ClassList list;
  if (!names_file.empty()) list.names = lines_of(names_file);
  const bool numbers = are_numbers(indexes, !names_file.empty());
  (numbers ? count_numbers : look_up)(indexes, names_file, list);
  list.are_numbers = numbers && names_file.empty();
  require_trained(indexes, validation, !names_file.empty(), list);
  list.remark = check_names(
      list.names, [&](std::string_view name) { return place_of(indexes, names_file, name); });
  const std::size_t trained = list.names.size() - list.untrained;
  constexpr std::size_t many = 1000;  // as DataSet allows in files of other programs
  require(!names_file.empty() || list.untrained < std::max(many, trained),
          fmt::format("labels up to {} make {} classes, but only {} of them have training images; "
                      "if that is right, name them all (--class-names)",
                      list.names.back(), list.names.size(), trained));
  return list;
}

}  // namespace lockstep::pack
