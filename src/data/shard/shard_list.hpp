#pragma once

#include <filesystem>
#include <vector>

#include "data/shard/shard_file.hpp"

namespace lockstep::data {

/// The files of a data set, sorted: `path` itself, the *.h5 in a folder, or those that match a
/// pattern. Throws InputError naming `path` when there are none.
std::vector<std::filesystem::path> list_shards(const std::filesystem::path& path);

/// Checks that all shards agree on normalisation, shape and class names. Throws InputError naming
/// both files and what differs.
void check_agreement(const ShardFile& first, const ShardFile& other);

}  // namespace lockstep::data
