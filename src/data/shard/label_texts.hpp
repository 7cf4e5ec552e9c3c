#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/shard/shard_file.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::data {

/// Where the labels of other programs' files are texts, makes them places in `info.classes`. These
/// are the names that the files list, else those of the training set (spec.like), else all texts in
/// the order of their bytes. Returns whether it sorted them so. `labels`: of all rows, in the order
/// of the files. Throws InputError naming file and row.
bool number_texts(std::span<const ShardFile> files, const ExternalSpec& spec, DataSetInfo& info,
                  std::span<std::int32_t> labels);

}  // namespace lockstep::data
