#include "data/external/chosen_sets.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <hdf5_objects.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using Sets = std::vector<StoredSet>;
using Names = std::vector<std::string>;

const Names image_names = {"images", "image", "x", "data", "imgs", "img"};
const Names label_names = {"labels", "label",   "y",     "targets",
                           "target", "classes", "class", "class_id"};
/// What a column of whole numbers is usually called that is no label.
const Names other_names = {"id",     "ids",     "idx",    "index",     "indices", "key",   "keys",
                           "weight", "weights", "row",    "rows",      "time",    "fold",  "folds",
                           "split",  "group",   "groups", "timestamp", "count",   "counts"};

bool is_one_of(const Names& names, const std::string& word) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

std::string last_word(const std::string& name) {
  std::string word = name.substr(name.rfind('/') + 1);
  std::transform(word.begin(), word.end(), word.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return word;
}

/// "sample_weight" is a weight.
bool is_no_label(const std::string& name) {
  const std::string word = last_word(name);
  return is_one_of(other_names, word.substr(word.rfind('_') + 1));
}

bool has_one_value_a_row(const StoredSet& set) {
  return !set.shape.empty() && std::all_of(set.shape.begin() + 1, set.shape.end(),
                                           [](hsize_t extent) { return extent == 1; });
}

bool is_one_a_row(const StoredSet& set, hsize_t rows) {
  return has_one_value_a_row(set) && set.shape[0] == rows;
}

/// Leaves the candidates with usual names; all of them where none has one, and none where something
/// with such a name cannot be used.
void prefer(Sets& candidates, const FileContents& contents, const Names& usual) {
  const auto is_usual = [&](const auto& one) { return is_one_of(usual, last_word(one.name)); };
  if (std::any_of(candidates.begin(), candidates.end(), is_usual)) {
    std::erase_if(candidates, [&](const StoredSet& one) { return !is_usual(one); });
    return;
  }
  const bool hidden = std::ranges::any_of(contents.unusable, [&](const auto& one) {
    return last_word(one.name) != "classes" && is_usual(one);  // texts of this name name classes
  });
  if (hidden) candidates.clear();
}

StoredSet find_named(hid_t file, const fs::path& path, const std::string& given,
                     std::string_view key, const Sets& candidates, bool may_be_texts) {
  const std::string name = given.starts_with('/') ? given.substr(1) : given;
  const h5::Item item = h5::Item::data_set(file, path, name);
  ObjectInfo here, there;
  if (!object_info(file, ".", here) || !object_info(file, name.c_str(), there) ||
      here.fileno != there.fileno)
    item.refuse("lies in another file, to which an external link leads: name that file");
  StoredSet found;
  const std::string problem = describe(file, name, found);
  if (!problem.empty() && !(may_be_texts && found.texts && !found.shape.empty()))
    h5::refuse(path, fmt::format("{}, but {} must name numbers; there are {}", problem, key,
                                 list_text(candidates)));
  return found;
}

/// The data set of images that `given` names.
StoredSet named_images(hid_t file, const fs::path& path, const std::string& given,
                       const Sets& candidates) {
  StoredSet found = find_named(file, path, given, "data.images", candidates, false);
  if (found.truth) h5::refuse(path, fmt::format("{} holds true and false", shape_text(found)));
  if (found.shape.size() != 3 && found.shape.size() != 4)
    h5::refuse(path, fmt::format("{}: images have 4 dimensions (rows, height, width, channels; "
                                 "or channels first), or 3 when they are grey",
                                 shape_text(found)));
  return found;
}

/// Those that `spec` names; the channels of one follow those of the one before.
Sets choose_images(hid_t file, const fs::path& path, const ExternalSpec& spec,
                   const FileContents& contents) {
  Sets candidates;
  for (const StoredSet& one : contents.numbers)
    if ((one.shape.size() == 4 || one.shape.size() == 3) && !one.truth && !has_one_value_a_row(one))
      candidates.push_back(one);
  if (!spec.images.empty()) {
    const bool is_one = H5Lexists(file, spec.images.c_str(), H5P_DEFAULT) > 0;
    Sets found;
    for (const std::string& name : is_one ? Names{spec.images} : listed(spec.images)) {
      found.push_back(named_images(file, path, name, candidates));
      if (found.back().shape[0] != found[0].shape[0])
        h5::refuse(path, fmt::format("{} and {} do not have as many rows", shape_text(found[0]),
                                     shape_text(found.back())));
    }
    return found;
  }
  prefer(candidates, contents, image_names);
  if (candidates.size() == 1) return candidates;
  if (candidates.empty())
    h5::refuse(path, fmt::format(
                         "is not a shard and holds no images (numbers of 4 dimensions, or 3); make "
                         "shards with 'lockstep pack'. There are: {}",
                         list_text(contents)));
  h5::refuse(path,
             fmt::format("holds several data sets that may be the images; say which with "
                         "--data.images (and --data.labels), or name several whose channels are "
                         "one image's, with commas: {}",
                         list_text(candidates)));
}

/// Numbers, texts and one-hot rows that may be labels.
Sets label_candidates(hid_t file, const FileContents& contents, hsize_t rows) {
  Sets candidates;
  for (const StoredSet& one : contents.numbers) {
    const bool usual = is_one_of(label_names, last_word(one.name));
    if (is_one_a_row(one, rows) ||
        (may_be_one_hot(one, rows) && (usual || begins_one_hot(file, one))))
      candidates.push_back(one);
  }
  // Texts with another name may be those of files; called "classes" they name the classes.
  for (const StoredSet& one : contents.texts) {
    const std::string word = last_word(one.name);
    if (is_one_a_row(one, rows) && word != "classes" && is_one_of(label_names, word))
      candidates.push_back(one);
  }
  return candidates;
}

void choose_labels(hid_t file, const fs::path& path, const std::string& named,
                   const FileContents& contents, ChosenSets& sets) {
  const hsize_t rows = sets.images.shape[0];
  Sets candidates = label_candidates(file, contents, rows);
  if (!named.empty()) {
    sets.labels = find_named(file, path, named, "data.labels", candidates, true);
    if (!is_one_a_row(sets.labels, rows) &&
        (sets.labels.texts || !may_be_one_hot(sets.labels, rows)))
      h5::refuse(path, fmt::format("{} is not one label for each of the {} rows of {}",
                                   shape_text(sets.labels), rows, shape_text(sets.images)));
    return;
  }
  prefer(candidates, contents, label_names);
  if (candidates.empty())
    h5::refuse(path, fmt::format("holds no labels for the {} rows of {}; say where they are with "
                                 "--data.labels (NAME, or FILE:NAME). There are: {}",
                                 rows, shape_text(sets.images), list_text(contents)));
  if (candidates.size() > 1)
    h5::refuse(path, fmt::format("holds several data sets that may be the labels of {}; say which "
                                 "with --data.labels: {}",
                                 shape_text(sets.images), list_text(candidates)));
  sets.labels = candidates.front();
  sets.is_guess = !is_one_of(label_names, last_word(sets.labels.name));
  if (sets.is_guess && is_no_label(sets.labels.name))
    h5::refuse(path,
               fmt::format("has {} for the rows of {}, whose name is not that of labels; if "
                           "it holds the labels, say --data.labels {}",
                           shape_text(sets.labels), shape_text(sets.images), sets.labels.name));
}

}  // namespace

bool may_be_one_hot(const StoredSet& set, hsize_t rows) {
  return set.shape.size() == 2 && set.shape[0] == rows && set.shape[1] > 1 &&
         set.shape[1] <= most_classes;
}

ChosenSets choose_sets(hid_t file, const fs::path& path, const ExternalSpec& spec) {
  const FileContents contents = look_into(file);
  ChosenSets sets;
  sets.more_images = choose_images(file, path, spec, contents);
  sets.images = sets.more_images.front();
  sets.more_images.erase(sets.more_images.begin());
  sets.labels_path = path;
  const LabelsPlace place = labels_place(spec);
  const bool is_here = place.file.empty() || H5Lexists(file, spec.labels.c_str(), H5P_DEFAULT) > 0;
  if (is_here) {
    choose_labels(file, path, spec.labels, contents, sets);
    return sets;
  }
  if (spec.labels_of_training)
    h5::refuse(path, fmt::format("data.labels = {} are the labels of other images: name those of "
                                 "these, FILE:NAME, by --data.val-labels in a training, else by "
                                 "--data.labels",
                                 spec.labels));
  if (place.name.empty())
    h5::refuse(path, fmt::format("data.labels = {} names no data set", spec.labels));
  if (::access(place.file.c_str(), R_OK) != 0)
    h5::refuse(place.file, fmt::format("cannot be read: {}; data.labels = {} names this file",
                                       std::strerror(errno), spec.labels));
  sets.labels_path = place.file;
  sets.labels_file = h5::open_file(place.file);
  const hid_t other = sets.labels_file.get();
  choose_labels(other, place.file, place.name, look_into(other), sets);
  return sets;
}

std::string sets_text(const ChosenSets& sets, const ExternalLabels& labels) {
  const bool values = labels.wanted.task() == Task::values;
  std::string images = shape_text(sets.images);
  for (const StoredSet& more : sets.more_images) images += " and " + shape_text(more);
  return fmt::format("images {}, {} {}{}{}", images, values ? "values" : "labels",
                     shape_text(sets.labels),
                     labels.classes > 0                     ? " (one-hot)"
                     : sets.labels.texts                    ? " (texts)"
                     : labels.wanted.task() != Task::labels ? ""
                     : may_be_one_hot(sets.labels, sets.labels.shape[0])
                         ? " (not one-hot: each of a row's labels is 0 or 1)"
                         : " (0 or 1)",
                     sets.labels_file ? " in " + sets.labels_path.string() : "");
}

}  // namespace lockstep::data
