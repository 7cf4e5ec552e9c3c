#include "lockstep/data/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t kRounds = 8;  // even, so that the halves end with the widths they began with

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
std::uint64_t feistel(std::uint64_t value, unsigned bits, const std::uint32_t (&keys)[kRounds]) {
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

Sampler::Sampler(const SamplerSpec& spec) : spec_(spec) {
  check(spec.world > 0 && spec.rank >= 0 && spec.rank < spec.world, "a rank of the world");
  const auto world = static_cast<std::size_t>(spec.world);
  require(spec.rows > 0, "the data set has no rows");
  require(world <= spec.rows || !spec.shuffle,
          fmt::format("{} ranks are more than the {} rows of the data set; start fewer ranks",
                      world, spec.rows));
  require(spec.global_batch > 0 && spec.global_batch % world == 0,
          fmt::format("a global batch of {} rows cannot be shared evenly by {} ranks; take a "
                      "multiple of {}",
                      spec.global_batch, world, world));
  require(batches() > 0, fmt::format("a global batch of {} rows is larger than the data set's {}, "
                                     "and the last uneven batch is dropped: no step would remain; "
                                     "make the batch smaller or keep the last one",
                                     spec.global_batch, spec.rows));
}

std::size_t Sampler::batches() const {
  const std::size_t full = spec_.rows / spec_.global_batch;
  return full + (spec_.keep_last && spec_.rows % spec_.global_batch != 0 ? 1 : 0);
}

std::size_t Sampler::dropped() const {
  return spec_.keep_last ? 0 : spec_.rows % spec_.global_batch;
}

std::size_t Sampler::rank_batch() const {
  return spec_.global_batch / static_cast<std::size_t>(spec_.world);
}

Slice Sampler::slice(std::size_t index) const {
  check(index < batches(), "a batch of the epoch");
  const auto rank = static_cast<std::size_t>(spec_.rank);
  const auto world = static_cast<std::size_t>(spec_.world);
  const std::size_t begin = index * spec_.global_batch;
  Slice slice;
  slice.global_rows = std::min(spec_.global_batch, spec_.rows - begin);
  const std::size_t each = slice.global_rows / world, extra = slice.global_rows % world;
  slice.rows = each + (rank < extra ? 1 : 0);
  slice.first_position = begin + rank * each + std::min(rank, extra);
  return slice;
}

std::size_t Sampler::row(std::uint64_t epoch, std::size_t position) const {
  check(position < spec_.rows, "a position in the epoch");
  if (!spec_.shuffle || spec_.rows == 1) return position;
  const auto bits = static_cast<unsigned>(std::bit_width(spec_.rows - 1));
  const Philox a = draw4(spec_.seed, epoch, 0, Draw::shuffle);
  const Philox b = draw4(spec_.seed, epoch, 1, Draw::shuffle);
  const std::uint32_t keys[kRounds] = {a.word[0], a.word[1], a.word[2], a.word[3],
                                       b.word[0], b.word[1], b.word[2], b.word[3]};
  // Cycle walking: the network permutes [0, 2^bits); following it from a row until it returns to
  // [0, rows) permutes that. 2^bits < 2 * rows, so two steps are the most to expect on average.
  std::uint64_t at = position;
  do {
    at = feistel(at, bits, keys);
  } while (at >= spec_.rows);
  return at;
}

}  // namespace lockstep::data
