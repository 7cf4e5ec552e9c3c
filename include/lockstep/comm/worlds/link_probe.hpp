#pragma once

#include <memory>
#include <optional>

#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// The speed of the network between two ranks.
struct LinkRate {
  double bytes_per_s = 0;   ///< in each direction, both at once
  double round_trip_s = 0;  ///< of four bytes, at best
};

/// Measures links, each by the two ranks at its ends.
class LinkProbe {
 public:
  virtual ~LinkProbe() = default;
  /// This rank and `partner` call it at about the same time and get the same result: nothing when
  /// one of them has no time left. Takes about `seconds`, or a few round trips on a very slow link.
  /// Throws Error naming the partner when it does not come within the deadline.
  virtual std::optional<LinkRate> measure(int partner, double seconds, bool has_time = true) = 0;
};

/// A probe that uses this communicator's network. Its deadline is that of each message.
std::unique_ptr<LinkProbe> make_link_probe(std::unique_ptr<Communicator> communicator);

}  // namespace lockstep::comm
