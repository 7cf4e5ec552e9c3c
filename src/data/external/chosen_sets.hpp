#pragma once

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/external/wanted_rows.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::data {

/// A data set of numbers, or of texts, in a file of another program.
struct StoredSet {
  std::string name;  ///< without the first slash
  std::vector<hsize_t> shape;
  bool floats = false;
  bool truth = false;  ///< true and false, or other named numbers (an HDF5 enum): may be labels
  bool texts = false;  ///< strings: may be labels
};

std::string shape_text(const StoredSet& one);  ///< "/labels [300]"
std::string list_text(const std::vector<StoredSet>& all);

/// What lies in a file: data sets of numbers, and what cannot be used, with the reason.
struct FileContents {
  struct Unusable {
    std::string name;  ///< without the first slash
    std::string why;   ///< "/images cannot be opened by HDF5 1.10.8: ..."
  };
  std::vector<StoredSet> numbers;
  std::vector<StoredSet> texts;  ///< which are also among those that cannot be used as numbers
  std::vector<Unusable> unusable;
};
std::string list_text(const FileContents& contents);

/// The caller holds an h5::Session. Reads no values.
FileContents look_into(hid_t file);

/// Fills in `set` where an object is a data set of numbers; else returns what is wrong with it:
/// "/labels [300] holds texts".
std::string describe(hid_t file, const std::string& name, StoredSet& set);

/// The numbers that a data set's attributes _FillValue and missing_value say stand for no data.
using Missing = std::vector<double>;
Missing missing_values(hid_t data);

/// "; scale_factor 0.0001, add_offset 0 (not applied: ...)"; empty without such attributes.
std::string say_scaling(hid_t data);

inline constexpr std::size_t most_classes = std::size_t{1} << 20;  ///< that labels may have

/// Which data sets of another program's file are its images and its labels.
struct ChosenSets {
  StoredSet images, labels;
  std::vector<StoredSet> more_images;  ///< whose channels follow those of `images`
  std::filesystem::path labels_path;   ///< of the file that the labels lie in
  h5::File labels_file;                ///< open where that is another one than the images'
  bool is_guess = false;  ///< the labels were not named, and their name is not a usual one
};

/// Those that `spec` names. Else, of all data sets that could be images (or labels, of any kind),
/// the only one with a usual name; else the only one, unless its name is usual for something else
/// (an id, a weight). Throws InputError naming the file and what there is, where there is no such
/// one, or several. The caller holds an h5::Session.
ChosenSets choose_sets(hid_t file, const std::filesystem::path& path, const ExternalSpec& spec);

/// Whether a data set may be labels of which each is a row of numbers, one of them 1.
bool may_be_one_hot(const StoredSet& set, hsize_t rows);

/// The labels of another program's file.
struct ExternalLabels {
  std::vector<std::int32_t> labels;  ///< [rows]
  std::vector<std::string> texts;    ///< where labels are texts: each once; a label is its place
  std::size_t classes = 0;           ///< that a row of one-hot labels has; else 0
  WantedRows wanted;                 ///< where the task is not classes: then each label above is 0
};

/// "images /x [100, 16, 16, 3], labels /y [100, 4] (one-hot)".
std::string sets_text(const ChosenSets& sets, const ExternalLabels& labels);

/// Whether the first rows of a matrix are one-hot. The caller holds an h5::Session.
bool begins_one_hot(hid_t file, const StoredSet& set);

/// Reads the labels that were chosen, by `task` and `unknown` of the spec: of classes a whole
/// number or a text for each row, true or false, or a row of numbers of which one is 1 and the
/// others 0 (one-hot); of labels a row of 0 and 1; or numbers. Throws InputError naming file and
/// row, or the data set where it is not whole (see require_whole). `file`: that of the labels. The
/// caller holds an h5::Session.
ExternalLabels read_labels(hid_t file, const ChosenSets& sets, const ExternalSpec& spec);

/// How many numbers a row of labels has.
std::size_t columns_of(const StoredSet& labels);
/// Reads labels that are numbers, a piece at a time. `take` gets each row's number and its numbers,
/// and says whether to continue. Throws InputError naming file and set.
void read_each_row(const h5::Data& data, const ChosenSets& sets,
                   const std::function<bool(hsize_t row, std::span<const double> numbers)>& take);

/// The place of the only 1 among zeros.
std::optional<std::size_t> only_one(std::span<const double> row);

/// Reads what rows should say where each is not of one class (see read_labels). Without a task in
/// the spec the set must be labels beyond doubt: a matrix of 0 and 1 of which many rows are not
/// one-hot.
WantedRows read_wanted(const h5::Data& data, const ChosenSets& sets, const ExternalSpec& spec);

}  // namespace lockstep::data
