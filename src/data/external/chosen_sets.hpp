#pragma once

#include <hdf5.h>

#include <filesystem>
#include <string>

#include "data/external/file_contents.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::data {

inline constexpr std::size_t most_classes = std::size_t{1} << 20;  ///< that labels may have

/// Which data sets of another program's file are its images and its labels.
struct ChosenSets {
  StoredSet images, labels;
  std::filesystem::path labels_path;  ///< of the file that the labels lie in
  h5::File labels_file;               ///< open where that is another one than the images'
  bool is_guess = false;  ///< the labels were not named, and their name is not a usual one
};

/// Those that `spec` names. Else, of all data sets that could be images (or labels, of any kind),
/// the only one with a usual name; else the only one, unless its name is usual for something else
/// (an id, a weight). Throws InputError naming the file and what there is, where there is no such
/// one, or several. The caller holds an h5::Session.
ChosenSets choose_sets(hid_t file, const std::filesystem::path& path, const ExternalSpec& spec);

/// Whether a data set may be labels of which each is a row of numbers, one of them 1.
bool may_be_one_hot(const StoredSet& set, hsize_t rows);

/// "images /x [100, 16, 16, 3], labels /y [100, 4] (one-hot)".
std::string sets_text(const ChosenSets& sets);

}  // namespace lockstep::data
