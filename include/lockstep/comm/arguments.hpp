#pragma once

#include <string_view>

#include "lockstep/comm/communicator.hpp"

namespace lockstep::comm {

/// What every Communicator asks of a verb's arguments. These throw Error, which begins with `name`.

/// True when there is work: more than one rank and more than no elements.
bool has_work(Communicator& group, Elements data, std::string_view name, device::Stream& stream);
/// The elements of each rank's chunk.
std::size_t chunk_size(Communicator& group, Elements data, std::string_view name);
/// Elements of 8 bits have no sum and no maximum.
void check_reducible(Elements data, std::string_view name);
/// `root` must be a rank of the group.
void check_root(Communicator& group, int root, std::string_view name);
/// `peer` must be another rank of the group; a group of one may name itself.
void check_peer(Communicator& group, int peer, std::string_view name);

}  // namespace lockstep::comm
