#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/data/loading/loader.hpp"
#include "lockstep/data/loading/row_source.hpp"

namespace lockstep::data {

/// Reads row found.row of `rows`. If it is broken, reads the first whole row of a sequence that is
/// a pure function of (seed, epoch, row). found.by is the row that was read; found.what says what
/// was wrong. Throws BadRow, about the first row, when a hundred in a row are broken, and
/// InputError when a file cannot be read.
void read_whole(const MakeRow& make, std::size_t rows, std::uint64_t seed, std::uint64_t epoch,
                Replaced& found, std::span<std::uint8_t> image);

/// The `attempt`-th row, from 0, that may replace a broken one.
std::size_t substitute(std::size_t rows, std::uint64_t seed, std::uint64_t epoch, std::size_t row,
                       std::uint32_t attempt);

}  // namespace lockstep::data
