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

}  // namespace lockstep::pack
