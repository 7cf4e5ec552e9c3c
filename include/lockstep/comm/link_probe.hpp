#pragma once

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
  /// To be called by this rank and by `partner` at about the same time; both get the same. Takes
  /// about `seconds`, more on a link that is very slow. Throws Error naming the partner when it
  /// does not come within the deadline.
  virtual LinkRate measure(int partner, double seconds) = 0;
};

}  // namespace lockstep::comm
