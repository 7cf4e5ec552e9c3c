#pragma once

#include <filesystem>
#include <span>

namespace lockstep::data {

/// Replaces the mean and deviation in a finished shard, for who knows them only once all shards are
/// written. Throws InputError naming the path.
void set_normalisation(const std::filesystem::path& shard, std::span<const float> mean,
                       std::span<const float> stddev);

}  // namespace lockstep::data
