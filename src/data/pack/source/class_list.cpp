#include "data/pack/source/class_list.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <unordered_map>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/numbers.hpp"

namespace lockstep::data {
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

constexpr std::size_t most_classes = std::size_t{1} << 20;

Names lines_of(const fs::path& path) {
  Names names;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
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

/// Folder names are class names, also when they are 1, 2, 3.
bool are_numbers(const std::vector<IndexFile>& indexes) {
  for (const IndexFile& index : indexes) {
    require(index.labels_are_given() == indexes[0].labels_are_given(),
            fmt::format("{} and {}: one has labels, the other only class folders",
                        indexes[0].origin().string(), index.origin().string()));
    if (!index.labels_are_given()) return false;
    for (const std::string& name : index.classes())
      if (!whole_number<std::size_t>(name)) return false;
  }
  return true;
}

void count_numbers(const std::vector<IndexFile>& indexes, const fs::path& names_file,
                   ClassList& list) {
  const std::size_t named = list.names.size();
  const std::size_t most = named > 0 ? named : most_classes;
  std::size_t classes = named;
  for (const IndexFile& index : indexes) {
    std::vector<std::int32_t>& labels = list.labels.emplace_back();
    for (const std::string& name : index.classes()) {
      const std::size_t label = *whole_number<std::size_t>(name);
      require(label < most,
              fmt::format("{}: label {} is out of range: {}", index.origin().string(), name,
                          named > 0 ? fmt::format("{} names {} classes, which count from 0",
                                                  names_file.string(), named)
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
    for (const std::string& name : index.classes()) {
      const auto found = label_of.find(name);
      require(found != label_of.end(),
              fmt::format("{}: the label \"{}\" is not in {}", index.origin().string(), name,
                          names_file.string()));
      labels.push_back(found->second);
    }
  }
}

/// Which labels of the index a part has.
std::vector<bool> labels_in(const IndexFile& index, Part part) {
  std::vector<bool> there(index.classes().size());
  for (std::size_t row = 0; row < index.rows(part); ++row)
    there[static_cast<std::size_t>(index.row(part, row).label)] = true;
  return there;
}

void require_trained(const std::vector<IndexFile>& indexes, Part validation, bool named,
                     ClassList& list) {
  std::vector<bool> trained(list.names.size());
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    const std::vector<bool> there = labels_in(indexes[i], Part::training);
    for (std::size_t label = 0; label < there.size(); ++label)
      if (there[label]) trained[static_cast<std::size_t>(list.labels[i][label])] = true;
  }
  list.untrained = static_cast<std::size_t>(std::count(trained.begin(), trained.end(), false));
  for (std::size_t i = 0; i < indexes.size() && !named; ++i) {
    const std::vector<bool> there = labels_in(indexes[i], validation);
    for (std::size_t label = 0; label < there.size(); ++label)
      require(!there[label] || trained[static_cast<std::size_t>(list.labels[i][label])],
              fmt::format("{}: no training class has this name",
                          (indexes[i].origin() / indexes[i].classes()[label]).string()));
  }
}

}  // namespace

ClassList merge_classes(const std::vector<IndexFile>& indexes, Part validation,
                        const fs::path& names_file) {
  ClassList list;
  if (!names_file.empty()) list.names = lines_of(names_file);
  if (are_numbers(indexes))
    count_numbers(indexes, names_file, list);
  else
    look_up(indexes, names_file, list);
  require_trained(indexes, validation, !names_file.empty(), list);
  return list;
}

}  // namespace lockstep::data
