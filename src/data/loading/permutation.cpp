#include "data/loading/permutation.hpp"

#include <bit>
#include <utility>

#include "lockstep/base/rng.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t feistel_rounds =
    8;  // even, so that the halves end with the widths they began with

// Any function of (half, key) makes the network a bijection; a good one makes it look random. This
// is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", OOPSLA'14).
std::uint64_t mix(std::uint64_t half, std::uint32_t key) {
  std::uint64_t z = half ^ (static_cast<std::uint64_t>(key) << 32);
  z = (z + 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 31)) * 0x94D049BB133111EBull;
  return z ^ (z >> 32);
}

// A Feistel network on `bits` bits: each round swaps the halves after one was xored with a function
// of the other, which can be undone, so no two inputs meet. Halves may differ by one bit in width.
std::uint64_t feistel(std::uint64_t value, unsigned bits,
                      const std::uint32_t (&keys)[feistel_rounds]) {
  unsigned low_bits = bits / 2, high_bits = bits - low_bits;
  std::uint64_t low = value & ((1ull << low_bits) - 1), high = value >> low_bits;
  for (const std::uint32_t key : keys) {
    high ^= mix(low, key) & ((1ull << high_bits) - 1);
    std::swap(low, high);
    std::swap(low_bits, high_bits);
  }
  return high << low_bits | low;
}

}  // namespace

std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed,
                       std::uint64_t epoch, std::uint64_t stream) {
  if (size <= 1) return index;
  const auto bits = static_cast<unsigned>(std::bit_width(size - 1));
  const Philox a = draw4(seed, epoch, 2 * stream, Draw::shuffle);
  const Philox b = draw4(seed, epoch, 2 * stream + 1, Draw::shuffle);
  const std::uint32_t keys[feistel_rounds] = {a.word[0], a.word[1], a.word[2], a.word[3],
                                              b.word[0], b.word[1], b.word[2], b.word[3]};
  // Cycle walking: the network permutes [0, 2^bits). Following it from an index until it returns to
  // [0, size) gives a permutation of that. 2^bits < 2 * size, so on average it takes two steps at
  // most.
  std::uint64_t at = index;
  do {
    at = feistel(at, bits, keys);
  } while (at >= size);
  return at;
}

}  // namespace lockstep::data
