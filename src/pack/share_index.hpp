#pragma once

#include <filesystem>

#include "lockstep/comm/control.hpp"
#include "lockstep/pack/source/source.hpp"

namespace lockstep::pack {

inline constexpr double round_s = 0.1;  ///< between two exchanges with the other ranks

/// Writes the index of a source to `folder`, on all ranks together. The ranks share the pieces of
/// the source, so that each is searched and unpacked once. Throws the same error on all ranks.
void share_index(comm::Control& control, const SourceSpec& source,
                 const std::filesystem::path& folder);

}  // namespace lockstep::pack
