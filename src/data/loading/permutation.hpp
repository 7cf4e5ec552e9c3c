#pragma once

#include <cstdint>

namespace lockstep::data {

/// Where `index` goes in a permutation of [0, size) that is chosen by the other three: keyed, no
/// table, O(1).
std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed,
                       std::uint64_t epoch, std::uint64_t stream);

}  // namespace lockstep::data
