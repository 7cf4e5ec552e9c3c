#include "data/shard/label_texts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "lockstep/base/text/join.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/data/shard/data_set.hpp"

namespace lockstep::data {
namespace {

std::string without_blanks(const std::string& text) {
  constexpr const char* blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

/// All texts once, sorted. A number is most likely meant as one: as texts, 10 comes before 2.
std::vector<std::string> sorted_texts(std::span<const ShardFile> files) {
  std::vector<std::string> names;
  for (const ShardFile& file : files) {
    for (const std::string& text : file.label_texts)
      if (looks_like_number(text))
        h5::refuse(file.path, fmt::format("a label is the text \"{}\": write labels that are "
                                          "numbers as numbers, or list the names of all classes "
                                          "in a data set 'classes'",
                                          text));
    names.insert(names.end(), file.label_texts.begin(), file.label_texts.end());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    const std::string bare = without_blanks(name);
    if (bare != name && std::binary_search(names.begin(), names.end(), bare))
      h5::refuse(files.front().path,
                 fmt::format("or another file of the data set has the labels \"{}\" and \"{}\", "
                             "which differ by blanks alone: write one of them",
                             bare, name));
  }
  return names;
}

}  // namespace

std::string classes_in_order(std::span<const std::string> names) {
  constexpr std::size_t listed = 4;
  std::vector<std::string> parts;
  for (std::size_t c = 0; c < names.size(); ++c)
    if (c < listed || c + 1 == names.size())
      parts.push_back(fmt::format("{}{} {}", c > listed ? "... " : "", c, names[c]));
  return "classes in the order of their names: " + join(parts, ", ");
}

bool number_texts(std::span<const ShardFile> files, const ExternalSpec& spec, DataSetInfo& info,
                  std::span<std::int32_t> labels) {
  const bool texts = !files.front().label_texts.empty();
  for (const ShardFile& file : files)
    if (file.label_texts.empty() == texts)
      h5::refuse(file.path,
                 fmt::format("and {} are not of one kind: the labels of one are texts, those of "
                             "the other are numbers",
                             files.front().path.string()));
  if (!texts) return false;
  const bool listed = !info.classes.empty(), sorted = !listed && spec.like == nullptr;
  if (!listed) info.classes = sorted ? sorted_texts(files) : spec.like->classes;
  std::unordered_map<std::string_view, std::int32_t> class_of;
  for (const std::string& name : info.classes)
    class_of.emplace(name, static_cast<std::int32_t>(class_of.size()));
  auto label = labels.begin();
  for (const ShardFile& file : files)
    for (std::size_t row = 0; row < file.info.rows; ++row, ++label) {
      const std::string& text = file.label_texts[static_cast<std::size_t>(*label)];
      const auto found = class_of.find(text);
      if (found == class_of.end())
        h5::refuse(file.path,
                   fmt::format("row {} has the label \"{}\", which is not a class {}", row, text,
                               listed ? "that the file names" : "of the training set"));
      *label = found->second;
    }
  return sorted;
}

}  // namespace lockstep::data
