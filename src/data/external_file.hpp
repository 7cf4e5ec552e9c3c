#pragma once

#include <filesystem>

#include "lockstep/data/external.hpp"
#include "shard_file.hpp"

namespace lockstep::data {

/// Opens an HDF5 file that is no shard: finds its images and labels, and says in `form` how they
/// become pixels. Its classes are those that a data set `classes` names, or none yet; mean and
/// deviation are not known yet; labels are 0 or above. Throws InputError naming the file, what was
/// looked for and what there is.
ShardFile open_external(const std::filesystem::path& path, const ExternalSpec& spec);

/// The numbers that floats go from and to, of spec.range, or judged by some of the file's rows.
void set_range(ShardFile& file, const ExternalSpec& spec);

}  // namespace lockstep::data
