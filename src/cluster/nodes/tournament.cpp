#include "lockstep/cluster/nodes/tournament.hpp"

namespace lockstep::cluster {

std::size_t tournament_rounds(std::size_t count) {
  return count < 2 ? 0 : count % 2 == 0 ? count - 1 : count;
}

// The circle method. One whose partner would be itself meets the last one, which is outside the
// circle, or sits out when the count is odd.
std::optional<std::size_t> partner_in(std::size_t round, std::size_t me, std::size_t count) {
  if (count < 2) return std::nullopt;
  const std::size_t circle = tournament_rounds(count);
  const bool even = count % 2 == 0;
  if (even && me == count - 1) {
    // The member i of the circle with 2 i = round (mod circle, which is odd).
    return round % 2 == 0 ? round / 2 : (round + circle) / 2;
  }
  const std::size_t other = (round + circle - me) % circle;
  if (other != me) return other;
  return even ? std::optional(count - 1) : std::nullopt;
}

}  // namespace lockstep::cluster
