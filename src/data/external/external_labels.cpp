#include "data/external/chosen_sets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "data/chunked/chunk_filters.hpp"
#include "data/chunked/whole_data.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::data {
namespace {

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
            const StoredSet& set, const Missing& missing, std::vector<std::int32_t>& labels) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = values[i];
    if (std::ranges::find(missing, static_cast<double>(value)) != missing.end())
      h5::refuse(path, fmt::format("row {} of /{} is {}, which its attribute _FillValue or "
                                   "missing_value says is no label",
                                   first + i, set.name, value));
    const bool fits =
        value >= 0 && value <= std::numeric_limits<std::int32_t>::max();  // false for NaN
    labels.push_back(fits ? static_cast<std::int32_t>(value) : -1);
    if (!fits || static_cast<Number>(labels.back()) != value)
      h5::refuse(path, fmt::format("row {} of /{} is {}: labels are whole numbers from 0",
                                   first + i, set.name, value));
  }
}

/// Numbers that differ in every row count or name the rows.
void require_repeated(const std::filesystem::path& path, const StoredSet& set,
                      std::vector<std::int32_t> labels) {
  constexpr std::size_t few = 16;
  std::sort(labels.begin(), labels.end());
  if (labels.size() < few || std::adjacent_find(labels.begin(), labels.end()) != labels.end())
    return;
  h5::refuse(path, fmt::format("{} has another number in each row, so it does not look like "
                               "labels; if it is, say --data.labels {}",
                               shape_text(set), set.name));
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

/// False at a row that is not one-hot. REQUIRES: a matrix.
bool read_one_hot(const h5::Data& data, const ChosenSets& sets, bool must_be,
                  std::vector<std::int32_t>& labels) {
  bool all = true;
  read_each_row(data, sets, [&](hsize_t row, std::span<const double> numbers) {
    const auto label = only_one(numbers);
    if (!label && must_be)
      h5::refuse(sets.labels_path,
                 fmt::format("row {} of {} is not one-hot (one number is 1, the others 0), as "
                             "data.task = classes needs it",
                             row, shape_text(sets.labels)));
    if (label) labels.push_back(static_cast<std::int32_t>(*label));
    return all = label.has_value();
  });
  return all;
}

void read_whole_numbers(const h5::Data& data, const ChosenSets& sets,
                        std::vector<std::int32_t>& labels) {
  const std::filesystem::path& path = sets.labels_path;
  const StoredSet& set = sets.labels;
  const Missing missing = missing_values(data.get());
  const auto take = [&](auto numbers) {
    read_rows(data, path, set, 0, set.shape[0], numbers);
    accept(numbers, 0, path, set, missing, labels);
  };
  if (set.floats)
    take(std::vector<double>());
  else if (has_no_sign(data))
    take(std::vector<std::uint64_t>());
  else
    take(std::vector<std::int64_t>());
}

}  // namespace

std::size_t columns_of(const StoredSet& labels) {
  return may_be_one_hot(labels, labels.shape[0]) ? labels.shape[1] : 1;
}

void read_each_row(const h5::Data& data, const ChosenSets& sets,
                   const std::function<bool(hsize_t row, std::span<const double> numbers)>& take) {
  constexpr hsize_t block_values = 1 << 20;
  const StoredSet& set = sets.labels;
  const std::size_t columns = columns_of(set);
  const hsize_t rows = set.shape[0], block = std::max<hsize_t>(1, block_values / columns);
  std::vector<double> numbers;
  for (hsize_t first = 0; first < rows; first += block) {
    read_rows(data, sets.labels_path, set, first, std::min(block, rows - first), numbers);
    for (std::size_t at = 0; at < numbers.size(); at += columns)
      if (!take(first + at / columns, std::span<const double>(numbers).subspan(at, columns)))
        return;
  }
}

std::optional<std::size_t> only_one(std::span<const double> row) {
  std::optional<std::size_t> place;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] == 0) continue;
    if (row[i] != 1 || place) return std::nullopt;  // also for NaN
    place = i;
  }
  return place;
}

bool begins_one_hot(hid_t file, const StoredSet& set) {
  constexpr hsize_t looked_at = 8;
  const h5::Data data(H5Dopen2(file, set.name.c_str(), H5P_DEFAULT));
  std::vector<double> values;
  try {
    read_rows(data, "", set, 0, std::min(looked_at, set.shape[0]), values);
  } catch (const InputError&) {
    return false;
  }
  const std::span all(values);
  for (std::size_t at = 0; at < all.size(); at += set.shape[1])
    if (!only_one(all.subspan(at, set.shape[1]))) return false;
  return true;
}

ExternalLabels read_labels(hid_t file, const ChosenSets& sets, const ExternalSpec& spec) {
  const std::filesystem::path& path = sets.labels_path;
  const StoredSet& set = sets.labels;
  h5::Item item = h5::Item::data_set(file, path, set.name);
  ExternalLabels read;
  const h5::Data data(H5Dopen2(file, set.name.c_str(), H5P_DEFAULT));
  const Sources sources = require_whole(path, data.get());  // open while they are read
  read.labels.reserve(set.shape[0]);
  const bool of_classes = spec.task.value_or(Task::classes) == Task::classes;
  if (set.texts) {
    if (!of_classes)
      h5::refuse(path, fmt::format("/{} holds texts, which are names of classes: data.task = {} "
                                   "needs numbers",
                                   set.name, choice_name(*spec.task)));
    read_texts(item, path, set, read);
  } else if (of_classes && !may_be_one_hot(set, set.shape[0])) {
    read_whole_numbers(data, sets, read.labels);
  } else if (of_classes && read_one_hot(data, sets, spec.task.has_value(), read.labels)) {
    read.classes = set.shape[1];
  } else {
    read.wanted = read_wanted(data, sets, spec);
    read.labels.assign(set.shape[0], 0);
  }
  if (sets.is_guess && !set.texts) require_repeated(path, set, read.labels);
  if (read.wanted.task() == Task::classes && spec.unknown != UnknownLabels::none)
    h5::refuse(path, fmt::format("data.unknown = {} is about labels that are 0 or 1, and values; "
                                 "the labels of {} are classes",
                                 choice_name(spec.unknown), shape_text(set)));
  return read;
}

LabelsPlace labels_place(const ExternalSpec& spec) {
  const std::size_t colon = spec.labels.rfind(':');
  if (colon == std::string::npos) return {"", spec.labels};
  return {spec.labels.substr(0, colon), spec.labels.substr(colon + 1)};
}

std::string first_setting(const ExternalSpec& spec) {
  if (!spec.images.empty()) return "data.images = " + spec.images;
  if (!spec.labels.empty()) return "data.labels = " + spec.labels;
  if (spec.layout != "auto") return "data.layout = " + spec.layout;
  if (spec.element != "auto") return "data.element = " + spec.element;
  if (spec.range != "auto") return "data.range = " + spec.range;
  if (!spec.no_data.empty()) return "data.no-data = " + spec.no_data;
  if (!spec.channels.empty()) return "data.channels = " + spec.channels;
  if (spec.task) return std::string("data.task = ") + choice_name(*spec.task);
  if (spec.unknown != UnknownLabels::none)
    return std::string("data.unknown = ") + choice_name(spec.unknown);
  return {};
}

}  // namespace lockstep::data
