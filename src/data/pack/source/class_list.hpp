#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/pack/source/index_file.hpp"

namespace lockstep::data {

/// The classes of all indexes of a source together.
struct ClassList {
  std::vector<std::string> names;
  /// Of each index: its own label -> one of `names`.
  std::vector<std::vector<std::int32_t>> labels;
  std::size_t untrained = 0;  ///< classes without a training image
};

/// Names are sorted, or in the order of `names_file`; labels that were given and are all numbers
/// count in `names_file`, or are their own names. Throws InputError naming a label that is out of
/// range, not in the file, or that only `validation` has.
ClassList merge_classes(const std::vector<IndexFile>& indexes, Part validation,
                        const std::filesystem::path& names_file);

}  // namespace lockstep::data
