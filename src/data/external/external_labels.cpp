#include "data/external/external_labels.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>

#include "data/chunked/missing_filter.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/h5.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t most_classes = std::size_t{1} << 20;

std::string last_word(const std::string& name) {
  std::string word = name.substr(name.rfind('/') + 1);
  std::transform(word.begin(), word.end(), word.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return word;
}

bool is_one_a_row(const StoredSet& set, hsize_t rows) {
  return set.shape[0] == rows &&
         (set.shape.size() == 1 || (set.shape.size() == 2 && set.shape[1] == 1));
}

bool may_be_one_hot(const StoredSet& set, hsize_t rows) {
  return set.shape.size() == 2 && set.shape[0] == rows && set.shape[1] > 1 &&
         set.shape[1] <= most_classes;
}

std::vector<StoredSet> those(const std::vector<StoredSet>& all, hsize_t rows,
                             bool (*fit)(const StoredSet&, hsize_t)) {
  std::vector<StoredSet> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [&](const StoredSet& set) { return fit(set, rows); });
  return found;
}

StoredSet find_labels(hid_t file, const std::filesystem::path& path, const ExternalSpec& spec,
                      const FileContents& contents, const StoredSet& images) {
  static const std::vector<std::string> usual = {"labels", "label",   "y",     "targets",
                                                 "target", "classes", "class", "class_id"};
  const hsize_t rows = images.shape[0];
  std::vector<StoredSet> candidates = those(contents.numbers, rows, is_one_a_row);
  if (!spec.labels.empty()) {
    StoredSet found = find_named(file, path, spec.labels, "data.labels", candidates, true);
    if (!is_one_a_row(found, rows) && (found.texts || !may_be_one_hot(found, rows)))
      h5::refuse(path, fmt::format("{} is not one label for each of the {} rows of {}",
                                   shape_text(found), rows, shape_text(images)));
    return found;
  }
  // Texts with another name may be those of files; called "classes" they name the classes.
  for (const StoredSet& one : those(contents.texts, rows, is_one_a_row)) {
    const std::string word = last_word(one.name);
    if (word != "classes" && std::ranges::find(usual, word) != usual.end())
      candidates.push_back(one);
  }
  if (candidates.empty()) candidates = those(contents.numbers, rows, may_be_one_hot);
  const StoredSet* found = choose(candidates, contents, usual);
  if (found != nullptr) return *found;
  h5::refuse(path,
             candidates.size() < 2
                 ? fmt::format("holds no labels for the {} rows of {}; say where they are with "
                               "--data.labels. There are: {}",
                               rows, shape_text(images), list_text(contents))
                 : fmt::format("holds several data sets that may be the labels of {}; say which "
                               "with --data.labels: {}",
                               shape_text(images), list_text(candidates)));
}

/// Rows [first, first + count) of a data set of one or two dimensions.
template <class Number>
void read_rows(const h5::Data& data, const std::filesystem::path& path, const StoredSet& set,
               hsize_t first, hsize_t count, std::vector<Number>& numbers) {
  std::vector<hsize_t> start(set.shape.size(), 0), extent = set.shape;
  start[0] = first;
  extent[0] = count;
  std::size_t values = 1;
  for (const hsize_t one : extent) values *= one;
  numbers.resize(values);
  const h5::Space space(H5Dget_space(data.get()));
  const h5::Space memory(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr));
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(),
                          nullptr) >= 0 &&
      H5Dread(data.get(), h5::memory_type<Number>(), memory.get(), space.get(), H5P_DEFAULT,
              numbers.data()) >= 0)
    return;
  const std::string cause = h5::last_cause(), filter = missing_filter(data.get());
  h5::refuse(path, fmt::format("the data set /{} cannot be read: {}", set.name,
                               filter.empty() ? "HDF5: " + cause : filter));
}

template <class Number>
void accept(const std::vector<Number>& values, hsize_t first, const std::filesystem::path& path,
            const StoredSet& set, std::vector<std::int32_t>& labels) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = values[i];
    const bool fits =
        value >= 0 && value <= std::numeric_limits<std::int32_t>::max();  // false for NaN
    labels.push_back(fits ? static_cast<std::int32_t>(value) : -1);
    if (!fits || static_cast<Number>(labels.back()) != value)
      h5::refuse(path, fmt::format("row {} of /{} is {}: labels are whole numbers from 0",
                                   first + i, set.name, value));
  }
}

/// Numbers the texts in the order in which they come.
void read_texts(const h5::Item& item, const std::filesystem::path& path, const StoredSet& set,
                ExternalLabels& read) {
  constexpr hsize_t block = 1 << 16;
  std::unordered_map<std::string, std::int32_t> places;
  for (hsize_t first = 0; first < set.shape[0]; first += block) {
    const auto texts = item.read_strings(first, std::min(block, set.shape[0] - first));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].empty())
        h5::refuse(path, fmt::format("row {} of /{} is an empty text, which is no label", first + i,
                                     set.name));
      const auto [at, is_new] =
          places.emplace(texts[i], static_cast<std::int32_t>(read.texts.size()));
      if (is_new) read.texts.push_back(texts[i]);
      if (read.texts.size() > most_classes)
        h5::refuse(path, fmt::format("/{} has more than 2^20 different texts", set.name));
      read.labels.push_back(at->second);
    }
  }
}

/// Whole numbers without a sign, of which 64 bits with a sign do not hold all.
bool has_no_sign(const h5::Data& data) {
  const h5::Type type(H5Dget_type(data.get()));
  return H5Tget_sign(type.get()) == H5T_SGN_NONE;
}

/// The place of the only 1 among zeros.
std::optional<std::size_t> only_one(std::span<const double> row) {
  std::optional<std::size_t> place;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] == 0) continue;
    if (row[i] != 1 || place) return std::nullopt;  // also for NaN
    place = i;
  }
  return place;
}

void accept_one_hot(const std::vector<double>& values, hsize_t first,
                    const std::filesystem::path& path, const StoredSet& set,
                    std::vector<std::int32_t>& labels) {
  const std::size_t classes = set.shape[1];
  for (std::size_t at = 0; at < values.size(); at += classes) {
    const auto label = only_one(std::span(values).subspan(at, classes));
    if (!label)
      h5::refuse(path, fmt::format("row {} of {} is not one-hot (one number is 1, the others 0), "
                                   "and other labels are one whole number for each row",
                                   first + at / classes, shape_text(set)));
    labels.push_back(static_cast<std::int32_t>(*label));
  }
}

}  // namespace

const StoredSet* choose(const std::vector<StoredSet>& candidates, const FileContents& contents,
                        const std::vector<std::string>& usual) {
  for (const std::string& name : usual) {
    const auto fits = [&](const auto& one) { return last_word(one.name) == name; };
    const auto count = std::count_if(candidates.begin(), candidates.end(), fits);
    if (count > 1) return nullptr;
    if (count == 1) return &*std::find_if(candidates.begin(), candidates.end(), fits);
  }
  const auto is_usual = [&](const FileContents::Unusable& one) {
    const std::string word = last_word(one.name);  // texts called "classes" are their names
    return word != "classes" && std::find(usual.begin(), usual.end(), word) != usual.end();
  };
  const bool hidden = std::any_of(contents.unusable.begin(), contents.unusable.end(), is_usual);
  return candidates.size() == 1 && !hidden ? &candidates.front() : nullptr;
}

StoredSet find_named(hid_t file, const std::filesystem::path& path, const std::string& given,
                     std::string_view key, const std::vector<StoredSet>& candidates,
                     bool may_be_texts) {
  const std::string name = given.starts_with('/') ? given.substr(1) : given;
  const h5::Item item = h5::Item::data_set(file, path, name);
  H5O_info_t here, there;
  if (H5Oget_info2(file, &here, H5O_INFO_BASIC) < 0 ||
      H5Oget_info_by_name2(file, name.c_str(), &there, H5O_INFO_BASIC, H5P_DEFAULT) < 0 ||
      here.fileno != there.fileno)
    item.refuse("lies in another file, to which an external link leads: name that file");
  StoredSet found;
  const std::string problem = describe(file, name, found);
  if (!problem.empty() && !(may_be_texts && found.texts && !found.shape.empty()))
    h5::refuse(path, fmt::format("{}, but {} must name numbers; there are {}", problem, key,
                                 list_text(candidates)));
  return found;
}

ExternalLabels read_labels(hid_t file, const std::filesystem::path& path, const ExternalSpec& spec,
                           const FileContents& contents, const StoredSet& images) {
  constexpr hsize_t block_values = 1 << 20;
  const StoredSet set = find_labels(file, path, spec, contents, images);
  h5::Item item = h5::Item::data_set(file, path, set.name);
  const hsize_t rows = set.shape[0];
  ExternalLabels read;
  read.labels.reserve(rows);
  if (set.texts) {
    read_texts(item, path, set, read);
    return read;
  }
  const h5::Data data = item.take_data();
  const bool one_hot = may_be_one_hot(set, rows);
  if (one_hot) read.classes = set.shape[1];
  const hsize_t block = one_hot ? std::max<hsize_t>(1, block_values / set.shape[1]) : rows;
  std::vector<double> reals;
  std::vector<std::int64_t> whole;
  std::vector<std::uint64_t> natural;
  const bool no_sign = has_no_sign(data);
  for (hsize_t first = 0; first < rows; first += block) {
    const hsize_t count = std::min(block, rows - first);
    if (one_hot) {
      read_rows(data, path, set, first, count, reals);
      accept_one_hot(reals, first, path, set, read.labels);
    } else if (set.floats) {
      read_rows(data, path, set, first, count, reals);
      accept(reals, first, path, set, read.labels);
    } else if (no_sign) {
      read_rows(data, path, set, first, count, natural);
      accept(natural, first, path, set, read.labels);
    } else {
      read_rows(data, path, set, first, count, whole);
      accept(whole, first, path, set, read.labels);
    }
  }
  return read;
}

}  // namespace lockstep::data
