// Sobol's points, with the directions of Joe and Kuo ("Constructing Sobol sequences with better
// two-dimensional projections", 2008), scrambled as Owen did ("Randomly permuted (t,m,s)-nets and
// (t,s)-sequences", 1995): each bit of a coordinate is turned over or not by a draw that depends on
// the bits above it.

#include <array>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/study/search/space.hpp"

namespace lockstep::study {
namespace {

constexpr unsigned bits = 32;

/// A primitive polynomial's degree, its inner coefficients as bits, and the first directions.
struct Direction {
  unsigned degree, inner;
  std::array<std::uint32_t, 7> first;
};

/// Of the second coordinate and later ones.
constexpr std::array<Direction, most_sobol_dimensions - 1> directions{{
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
}};

/// What bit k of an index adds (without carry) to a coordinate.
std::array<std::uint32_t, bits> matrix_of(std::size_t dimension) {
  std::array<std::uint32_t, bits> column{};
  for (unsigned k = 0; k < bits; ++k) column[k] = std::uint32_t{1} << (bits - 1 - k);
  if (dimension == 0) return column;
  const Direction& one = directions[dimension - 1];
  for (unsigned k = 0; k < one.degree; ++k) column[k] = one.first[k] << (bits - 1 - k);
  for (unsigned k = one.degree; k < bits; ++k) {
    column[k] = column[k - one.degree] ^ (column[k - one.degree] >> one.degree);
    for (unsigned j = 1; j < one.degree; ++j)
      if ((one.inner >> (one.degree - 1 - j) & 1) != 0) column[k] ^= column[k - j];
  }
  return column;
}

/// The counter's second word has 0 for a draw, and else which bit of the prefix is the last.
std::uint32_t random_bits(std::uint64_t seed, std::uint32_t low, std::uint32_t what,
                          std::size_t dimension) {
  return philox(seed, low, static_cast<std::uint64_t>(dimension) << bits | what).word[0];
}

std::uint32_t scrambled(std::uint32_t value, std::uint64_t seed, std::size_t dimension) {
  std::uint32_t turned = 0;
  for (unsigned k = 0; k < bits; ++k) {
    const std::uint32_t above = k == 0 ? 0 : value >> (bits - k);
    turned |= (random_bits(seed, above, k + 1, dimension) & 1) << (bits - 1 - k);
  }
  return value ^ turned;
}

}  // namespace

double coordinate(PointSampler sampler, std::uint64_t seed, std::uint32_t index,
                  std::size_t dimension) {
  if (sampler == PointSampler::random) return random_bits(seed, index, 0, dimension) * 0x1p-32;
  check(dimension < most_sobol_dimensions, "a coordinate that Sobol's points have");
  const auto column = matrix_of(dimension);
  std::uint32_t value = 0;
  for (unsigned k = 0; k < bits; ++k)
    if ((index >> k & 1) != 0) value ^= column[k];
  return scrambled(value, seed, dimension) * 0x1p-32;
}

}  // namespace lockstep::study
