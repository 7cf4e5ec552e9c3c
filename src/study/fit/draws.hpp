#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "lockstep/base/rng.hpp"

namespace lockstep::study {

/// The random numbers of one replicate of a bootstrap: a function of seed, replicate and position.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t replicate) : seed_(seed), replicate_(replicate) {}
  std::size_t below(std::size_t position, std::size_t n) const {
    return lockstep::below(words(position).word[0], static_cast<std::uint32_t>(n));
  }
  /// Standard normal.
  double normal(std::size_t position) const {
    const Philox w = words(position);
    const double u = (w.word[1] + 0.5) * 0x1p-32, v = w.word[2] * 0x1p-32;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  }
  /// What a standard deviation that was estimated with this much freedom is to be multiplied with,
  /// so that the results are spread like Student's t.
  double doubt(std::size_t position, std::size_t freedom) const {
    double squares = 0;
    for (std::size_t i = 0; i < freedom; ++i) squares += std::pow(normal(position + i), 2);
    return std::sqrt(static_cast<double>(freedom) / squares);
  }

 private:
  Philox words(std::size_t position) const { return philox(seed_, position, replicate_); }
  std::uint64_t seed_, replicate_;
};

}  // namespace lockstep::study
