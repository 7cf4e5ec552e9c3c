#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// Which rows are held out: of each class this share of its rows, rounded, chosen by the seed and
/// the rows' numbers alone; each class keeps a row. Where rows have no classes, all labels are 0.
std::vector<bool> held_out_rows(std::span<const std::int32_t> labels, double share,
                                std::uint64_t seed);

}  // namespace lockstep::data
