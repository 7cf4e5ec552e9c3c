#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/control.hpp"
#include "lockstep/pack/source/source.hpp"
#include "pack/packer.hpp"

namespace lockstep::pack {

/// What all ranks wrote together, without the list of skipped rows; exact. Collective.
Tally add_up(comm::Control& control, const Tally& own);

/// All ranks' unreadable images, in the source's order. Collective.
std::vector<SkippedRow> gather_skipped(comm::Control& control, const Tally& own);

/// Classes that lost all of their training images, with how many these were.
std::vector<std::string> lost_classes(const Source& source, const std::vector<ShardPlan>& plan,
                                      const std::vector<SkippedRow>& skipped);

/// What to say of images that are equal, as they were packed, and have different classes, or are
/// one for training and one for validation. Reads the hashes of all shards.
std::vector<std::string> say_equal_images(const Source& source, const std::vector<ShardPlan>& plan,
                                          const std::filesystem::path& partial);

}  // namespace lockstep::pack
