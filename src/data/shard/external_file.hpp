#pragma once

#include <filesystem>
#include <optional>

#include "data/shard/shard_file.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::data {

/// Opens an HDF5 file that is not a shard: finds its images and labels, and how they become pixels.
/// Its classes are those that a data set `classes` names, or not known yet. Mean and deviation are
/// not known yet. Labels are 0 or above, or places in `label_texts`. `levels`: those of the data
/// set's first file; none: take spec.range, or judge by some of the file's rows. Throws InputError
/// naming the file, what was looked for and what there is.
ShardFile open_external(const std::filesystem::path& path, const ExternalSpec& spec,
                        const std::optional<Levels>& levels, BlockCache& cache);

}  // namespace lockstep::data
