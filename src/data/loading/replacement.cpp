#include "data/loading/replacement.hpp"

#include <fmt/core.h>

#include "lockstep/base/rng.hpp"

namespace lockstep::data {
namespace {

constexpr std::uint32_t most_attempts = 100;

}  // namespace

std::size_t substitute(std::size_t rows, std::uint64_t seed, std::uint64_t epoch, std::size_t row,
                       std::uint32_t attempt) {
  const Philox bits = draw4(seed, epoch, row, Draw::replace, attempt);
  const std::uint64_t number = std::uint64_t{bits.word[1]} << 32 | bits.word[0];
  return number % rows;
}

void read_whole(const MakeRow& make, std::size_t rows, std::uint64_t seed, std::uint64_t epoch,
                Replaced& found, std::span<std::uint8_t> image) {
  found.by = found.row;
  for (std::uint32_t attempt = 0;; ++attempt) {
    try {
      return make(epoch, found.by, image);
    } catch (const BadRow& broken) {
      if (attempt == 0) found.what = broken.what();
    }
    if (attempt == most_attempts)
      throw BadRow(fmt::format("{}; {} others that were to replace it are broken, too", found.what,
                               most_attempts));
    found.by = substitute(rows, seed, epoch, found.row, attempt);
  }
}

}  // namespace lockstep::data
