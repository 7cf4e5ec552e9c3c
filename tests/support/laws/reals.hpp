#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace lockstep::test {

/// Reals of very different sizes: each order of additions gives other bits.
inline std::vector<float> reals(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(mantissa(random), static_cast<int>(random() % 24));
  return values;
}

}  // namespace lockstep::test
