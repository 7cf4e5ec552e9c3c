#pragma once

#include <cstdint>

namespace lockstep {

/// What a random number is for. The values are part of the meaning of a seed: never renumber.
enum class Draw : std::uint32_t {
  shuffle = 1,
  crop = 2,
  flip = 3,
  cutout = 4,
  init = 5,
  split = 6,
  synth = 7,
  colour = 8,
  randaugment = 9,
  erase = 10,
  mix = 11,
  replace = 12,
  symmetry = 13,
  channels = 14
};

/// Four independent 32-bit words from Philox4x32-10 (Salmon et al., "Parallel random numbers: as
/// easy as 1, 2, 3", SC'11): a pure function of key and counter, so randomness depends on position
/// and never on history.
struct Philox {
  std::uint32_t word[4];
};

constexpr Philox philox(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  std::uint32_t c0 = static_cast<std::uint32_t>(low), c1 = static_cast<std::uint32_t>(low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(high), c3 = static_cast<std::uint32_t>(high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// The four words for (seed, epoch, row, purpose): the same on every rank, thread count and resume.
/// epoch < 2^24.
constexpr Philox draw4(std::uint64_t seed, std::uint64_t epoch, std::uint64_t row, Draw purpose) {
  return philox(seed, row, (epoch << 8) | static_cast<std::uint32_t>(purpose));
}

/// The same for attempt n, n < 2^32. Attempt 0 is draw4().
constexpr Philox draw4(std::uint64_t seed, std::uint64_t epoch, std::uint64_t row, Draw purpose,
                       std::uint32_t attempt) {
  return philox(seed, row,
                static_cast<std::uint64_t>(attempt) << 32 | (epoch << 8) |
                    static_cast<std::uint32_t>(purpose));
}

/// 64 random bits for (seed, epoch, row, purpose).
constexpr std::uint64_t draw(std::uint64_t seed, std::uint64_t epoch, std::uint64_t row,
                             Draw purpose) {
  const Philox r = draw4(seed, epoch, row, purpose);
  return (static_cast<std::uint64_t>(r.word[1]) << 32) | r.word[0];
}

/// An integer in [0, n) from 32 random bits; bias below n / 2^32.
constexpr std::uint32_t below(std::uint32_t bits, std::uint32_t n) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(bits) * n) >> 32);
}

/// A real number in [0, 1) with 24 random bits.
constexpr float unit(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

/// Uniform in [low, high).
constexpr double between(double low, double high, std::uint32_t bits) {
  return low + (high - low) * static_cast<double>(unit(bits));
}

}  // namespace lockstep
