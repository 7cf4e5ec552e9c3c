#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// The group that a rank will be in after a split.
struct SplitGroup {
  std::vector<int> ranks;   ///< numbers in the old group, in their new order; empty: no colour
  std::int32_t number = 0;  ///< the largest that any rank offered
};

/// What every Communicator::split() begins with: the ranks of `group` exchange their wishes.
/// `members`: the ranks of the world in it, for messages. `number`: what this rank offers, for
/// transports that number their groups. Throws InputError on all ranks, naming one whose colour is
/// negative. Collective, with the group's deadline.
SplitGroup agree_on_split(Communicator& group, const std::vector<int>& members,
                          std::optional<int> colour, int key, std::string_view name,
                          std::int32_t number = 0);

}  // namespace lockstep::comm
