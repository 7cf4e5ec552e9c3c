#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/image/channel_sums.hpp"
#include "lockstep/pack/pack_plan.hpp"

namespace lockstep::pack {

/// An image that was left out.
struct SkippedRow {
  std::size_t row = 0;  ///< of the source
  std::string reason;   ///< with the image's name
};

/// What a row is as it was packed, without its label, and where it is in the source.
struct RowHash {
  std::uint64_t hash = 0, row = 0;
};

/// The facts about a finished shard.
struct FinishedShard {
  std::size_t rows = 0;     ///< written
  std::uint64_t bytes = 0;  ///< of their pixels or JPEGs
  data::ChannelSums sums;   ///< of a training shard
  std::vector<SkippedRow> skipped;
  std::vector<RowHash> hashes = {};  ///< of the rows written; read_note() does not read them
};

/// Marks a shard of a plan as finished. Throws InputError naming the file.
void write_note(const std::filesystem::path& partial, const ShardPlan& shard,
                const FinishedShard& finished);

/// Empty when the shard is not finished. Throws InputError when its note is damaged.
std::optional<FinishedShard> read_note(const std::filesystem::path& partial, const ShardPlan& shard,
                                       std::size_t channels);

/// The hashes of a finished shard's rows. Throws InputError naming the file.
std::vector<RowHash> read_hashes(const std::filesystem::path& partial, const ShardPlan& shard);

}  // namespace lockstep::pack
