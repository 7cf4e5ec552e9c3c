#pragma once

#include <vector>

#include "lockstep/comm/elements.hpp"

namespace lockstep::comm {

/// How direct collectives on the host cut their data. Every transport cuts it in the same way: the
/// owner of a chunk begins its sum, so the cut decides the bits.

/// The part of `data` whose sum this rank owns. It starts at a cache line of floats. Little data
/// has few owners: one is faster than many messages.
Elements owned_chunk(const Elements& data, int rank, int world);
/// Chunk `rank` of `world` equal ones.
Elements equal_chunk(const Elements& data, int rank, int world);
/// The messages of a chunk, in order. They fit in a block, and so does their sum in float.
std::vector<Elements> pieces_of(const Elements& chunk);

}  // namespace lockstep::comm
