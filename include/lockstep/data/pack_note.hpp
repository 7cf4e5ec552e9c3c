#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/channel_sums.hpp"
#include "lockstep/data/pack_plan.hpp"

namespace lockstep::data {

/// An image that was left out.
struct SkippedRow {
  std::size_t row = 0;  ///< of the source
  std::string reason;   ///< with its name
  /// For comm/record.
  static void fields(auto& self, auto&& visit) { visit(self.row, self.reason); }
};

/// What is known of a shard that was written.
struct FinishedShard {
  std::size_t rows = 0;     ///< written
  std::uint64_t bytes = 0;  ///< of their pixels or JPEGs
  ChannelSums sums;         ///< of a training shard
  std::vector<SkippedRow> skipped;
};

/// Says that a shard of a plan is finished. Throws InputError naming the file.
void write_note(const std::filesystem::path& partial, const ShardPlan& shard,
                const FinishedShard& finished);

/// Empty when the shard is not finished. Throws InputError when its note is damaged.
std::optional<FinishedShard> read_note(const std::filesystem::path& partial, const ShardPlan& shard,
                                       std::size_t channels);

}  // namespace lockstep::data
