#pragma once

#include <hdf5.h>

#include <string>
#include <vector>

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

}  // namespace lockstep::data
