#pragma once

namespace lockstep::observe {

/// How a number is written. A mean, rate or share that is not finite is null.
enum class Form {
  plain,
  mean,   ///< 9 significant digits
  share,  ///< 6 decimals
  ms,     ///< 3 decimals
  rate    ///< 1 decimal
};

}  // namespace lockstep::observe
