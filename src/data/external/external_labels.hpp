#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/external/chosen_sets.hpp"

namespace lockstep::data {

/// The labels of another program's file.
struct ExternalLabels {
  std::vector<std::int32_t> labels;  ///< [rows]
  std::vector<std::string> texts;    ///< where labels are texts: each once; a label is its place
  std::size_t classes = 0;           ///< that a row of one-hot labels has; else 0
};

/// Whether the first rows of a matrix are one-hot. The caller holds an h5::Session.
bool begins_one_hot(hid_t file, const StoredSet& set);

/// Reads the labels that were chosen: a whole number or a text for each row, true or false, or a
/// row of numbers of which one is 1 and the others 0 (one-hot). Throws InputError naming file and
/// row, or the data set where it is not whole (see require_whole). `file`: that of the labels. The
/// caller holds an h5::Session.
ExternalLabels read_labels(hid_t file, const ChosenSets& sets);

}  // namespace lockstep::data
