#pragma once

#include <filesystem>
#include <vector>

#include "data/shard/shard_file.hpp"

namespace lockstep::data {

/// The files of a data set, sorted: `path` itself, the *.h5 in a folder, or those that a pattern
/// names. Throws InputError naming `path` when there are none.
std::vector<std::filesystem::path> list_shards(const std::filesystem::path& path);

/// All shards normalise, shape and name their rows alike, or they are not one data set: throws
/// InputError naming both files and what differs.
void check_agreement(const ShardFile& first, const ShardFile& other);

}  // namespace lockstep::data
