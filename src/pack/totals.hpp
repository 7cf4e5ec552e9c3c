#pragma once

#include <string>
#include <vector>

#include "lockstep/pack/source/source.hpp"
#include "pack/pack_note.hpp"

namespace lockstep::pack {

/// The totals of all shards; exact.
struct Totals {
  std::size_t training_rows = 0, validation_rows = 0;
  std::uint64_t bytes = 0;
  data::ChannelSums sums;
  std::vector<SkippedRow> skipped;  ///< in the source's order
  explicit Totals(std::size_t channels = 0) : sums(channels) {}
};

/// What the notes of a plan's shards say. Throws Error naming one that is missing, and as
/// read_note().
Totals read_totals(const std::filesystem::path& partial, const std::vector<ShardPlan>& plan,
                   std::size_t channels);

/// Classes that lost all of their training images, with how many these were.
std::vector<std::string> lost_classes(const Source& source, const std::vector<ShardPlan>& plan,
                                      const std::vector<SkippedRow>& skipped);

/// What to say of images that are equal, as they were packed, and have different classes, or are
/// one for training and one for validation. Reads the hashes of all shards.
std::vector<std::string> say_equal_images(const Source& source, const std::vector<ShardPlan>& plan,
                                          const std::filesystem::path& partial);

}  // namespace lockstep::pack
