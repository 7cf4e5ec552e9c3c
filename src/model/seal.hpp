#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/nn/arena.hpp"

// HDF5 checks little of its metadata, so the check covers a checkpoint as bytes: the user block,
// which HDF5 leaves to the application, says what the bytes after it must be.
namespace lockstep::model {

inline constexpr std::size_t user_block_bytes = 512;

/// The user block that belongs before this HDF5 part; `more`: bytes that follow it in the file.
std::string user_block(std::string_view hdf5_part, int format, std::uint64_t more = 0);

/// Checks the file and returns its format. Throws InputError as verify_checkpoint() does.
int verified_format(const std::filesystem::path& path);

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
