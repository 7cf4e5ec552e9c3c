#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/network.hpp"
#include "lockstep/comm/staging.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "ports/tcp/mesh/mesh.hpp"

namespace lockstep::comm {

/// What all groups of a rank share.
struct MeshHub {
  double deadline_s = 0;  ///< of silence, after which an operation fails
  FindAbsence find_absence;
  Staging staging;
  std::optional<Mesh> mesh;  ///< empty in a world of one rank
  HostNetwork network;       // last: its operations use the others
  std::int32_t next_group = 1;
};

/// A group, as its operations see it.
struct MeshGroup {
  MeshHub* hub = nullptr;   ///< its operations hold the group, and it holds the operations
  std::int32_t number = 0;  ///< the same on all its ranks; no two groups with a common pair of
                            ///< ranks have the same
  std::string name;         ///< empty for the world
  int rank = 0;
  std::vector<int> members{};  ///< by rank: their ranks in the world
  std::uint32_t collectives = 0;
  std::map<int, std::uint32_t> sent{}, received{};  ///< by rank: how many messages

  int world() const { return static_cast<int>(members.size()); }
};

/// Which messages belong to one operation.
struct MeshTag {
  std::uint32_t group = 0, operation = 0;
};

}  // namespace lockstep::comm
