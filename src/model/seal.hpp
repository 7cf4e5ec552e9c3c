#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

// HDF5 checks little of its metadata, so the check covers a checkpoint as bytes: the user block,
// which HDF5 leaves to the application, says what the bytes after it must be.
namespace lockstep::model {

inline constexpr std::size_t user_block_bytes = 512;

/// The user block that belongs before this HDF5 part.
std::string user_block(std::string_view hdf5_part, int format);

/// Checks the whole file and returns its format. Throws InputError as verify_checkpoint() does.
int verified_format(const std::filesystem::path& path);

}  // namespace lockstep::model
