#pragma once

#include <cstddef>

#include "lockstep/nn/arena.hpp"

namespace lockstep::model {

/// Frozen tensors have none.
inline bool has_momentum(const nn::ArenaLayout& layout, std::size_t slice) {
  return slice < layout.moving_slices() && nn::learned(layout.slices[slice].tensor.role);
}

/// Written where the file holds an average: the number of its tensors.
inline constexpr const char* average_attribute = "ema_tensors";
/// Written, as 1, where the file holds second moments.
inline constexpr const char* moments_attribute = "second_moments";
/// The list of what follows the HDF5 part: a line of name, bytes and checksum for each.
inline constexpr const char* parts_name = "exchange_parts";

}  // namespace lockstep::model
