#include "model/seal.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fstream>

#include <fmt/core.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/model/checkpoint.hpp"

namespace lockstep::model {
namespace {

constexpr std::string_view checkpoint_magic = "lockstep checkpoint ";

/// The format that a file's first bytes give. If there is no number, the checksum will find the
/// error.
int require_known_format(const std::filesystem::path& path, std::string_view begin) {
  int format = checkpoint_format;
  begin.remove_prefix(checkpoint_magic.size());
  std::from_chars(begin.data(), begin.data() + begin.size(), format);
  require(format >= oldest_checkpoint_format && format <= checkpoint_format,
          fmt::format("{}: has checkpoint format {}, but this lockstep reads formats {} to {}: use "
                      "the lockstep that wrote it",
                      path.string(), format, oldest_checkpoint_format, checkpoint_format));
  return format;
}

/// What is before an HDF5 part of this checksum and length.
std::string user_block_of(std::uint32_t checksum, std::size_t bytes, int format) {
  std::string block =
      fmt::format("{}{}\ncrc32c 0x{:08x}\nbytes {}\n", checkpoint_magic, format, checksum, bytes);
  block.resize(user_block_bytes, '\0');
  return block;
}

}  // namespace

std::string user_block(std::string_view hdf5_part, int format) {
  return user_block_of(crc32c(hdf5_part.data(), hdf5_part.size()), hdf5_part.size(), format);
}

/// A file may be larger than memory: it holds the state of all ranks where these differ.
int verified_format(const std::filesystem::path& path) {
  std::string block;
  std::uint32_t checksum = 0;
  std::size_t bytes = 0;
  read_in_pieces(path, [&](std::string_view piece) {
    const std::size_t head = std::min(user_block_bytes - block.size(), piece.size());
    block += piece.substr(0, head);
    piece.remove_prefix(head);
    checksum = crc32c(piece.data(), piece.size(), checksum);
    bytes += piece.size();
  });
  require(block.starts_with(checkpoint_magic),
          fmt::format("{}: not a lockstep checkpoint", path.string()));
  const int format = require_known_format(path, block);
  require(bytes > 0 && block == user_block_of(checksum, bytes, format),
          fmt::format("{}: this checkpoint is torn or was altered: its checksum does not fit",
                      path.string()));
  return format;
}

bool looks_like_checkpoint(const std::filesystem::path& path) {
  require_regular(path);
  std::array<char, checkpoint_magic.size()> begin{};
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), begin.size()) &&
         std::string_view(begin.data(), begin.size()) == checkpoint_magic;
}

void verify_checkpoint(const std::filesystem::path& path) { verified_format(path); }

}  // namespace lockstep::model
