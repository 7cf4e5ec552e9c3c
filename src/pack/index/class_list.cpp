#include "pack/index/class_list.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <unordered_map>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "pack/index/class_names.hpp"

namespace lockstep::pack {
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
