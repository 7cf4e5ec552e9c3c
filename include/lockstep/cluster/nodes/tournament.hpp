#pragma once

#include <cstddef>
#include <optional>

namespace lockstep::cluster {

/// A round-robin tournament: in tournament_rounds(count) rounds each pair meets once. Returns the
/// partner of `me` of `count` in `round`, or nothing when `me` sits the round out. Pure.
std::optional<std::size_t> partner_in(std::size_t round, std::size_t me, std::size_t count);
std::size_t tournament_rounds(std::size_t count);

}  // namespace lockstep::cluster
