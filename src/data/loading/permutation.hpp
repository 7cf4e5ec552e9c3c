#pragma once

#include <cstdint>

namespace lockstep::data {

/// The place of `index` in a permutation of [0, size) that the other three arguments choose: keyed,
/// without a table, O(1).
std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed,
                       std::uint64_t epoch, std::uint64_t stream);

}  // namespace lockstep::data
