#pragma once

#include <optional>

namespace lockstep::comm {

/// What the network between two ranks does.
struct LinkRate {
  double bytes_per_s = 0;   ///< in each direction, both at once
  double round_trip_s = 0;  ///< of a byte, at best
};

/// Measures links, each by the two ranks at its ends.
class LinkProbe {
 public:
  virtual ~LinkProbe() = default;
  /// To be called by this rank and by `partner` at about the same time; both get the same: nothing
  /// when one of them says that it has no time left. Takes about `seconds`; on a link that is very
  /// slow some round trips. Throws Error naming the partner when it does not come within the
  /// deadline.
  virtual std::optional<LinkRate> measure(int partner, double seconds, bool has_time = true) = 0;
};

}  // namespace lockstep::comm
