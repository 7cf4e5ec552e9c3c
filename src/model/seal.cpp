#include "model/seal.hpp"

#include <array>
#include <charconv>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/model/checkpoint.hpp"

namespace lockstep::model {
namespace {

constexpr std::string_view checkpoint_magic = "lockstep checkpoint ";
constexpr std::string_view then_word = "then ";

/// The format that a file's first bytes give. If there is no number, the checksum will find the
/// error.
int require_known_format(const std::filesystem::path& path, std::string_view begin) {
  int format = checkpoint_format;
  begin.remove_prefix(checkpoint_magic.size());
  std::from_chars(begin.data(), begin.data() + begin.size(), format);
  require(format >= oldest_checkpoint_format && format <= format_with_shaping,
          fmt::format("{}: has checkpoint format {}, but this lockstep reads formats {} to {}: use "
                      "the lockstep that wrote it",
                      path.string(), format, oldest_checkpoint_format, format_with_shaping));
  return format;
}

/// How many bytes follow the HDF5 part, as the block says it.
std::uint64_t bytes_after(std::string_view block, int format) {
  std::uint64_t more = 0;
  const std::size_t at = block.find(then_word);
  if (format >= format_with_parts && at != std::string_view::npos)
    std::from_chars(block.data() + at + then_word.size(), block.data() + block.size(), more);
  return more;
}

/// What is before an HDF5 part of this checksum and length.
std::string user_block_of(std::uint32_t checksum, std::uint64_t bytes, std::uint64_t more,
                          int format) {
  std::string block =
      fmt::format("{}{}\ncrc32c 0x{:08x}\nbytes {}\n", checkpoint_magic, format, checksum, bytes);
  if (format >= format_with_parts) block += fmt::format("{}{}\n", then_word, more);
  block.resize(user_block_bytes, '\0');
  return block;
}

}  // namespace

std::string user_block(std::string_view hdf5_part, int format, std::uint64_t more) {
  return user_block_of(crc32c(hdf5_part.data(), hdf5_part.size()), hdf5_part.size(), more, format);
}

/// A file may be larger than memory: it holds the state of all ranks where these differ.
int verified_format(const std::filesystem::path& path) {
  std::string block;
  read_first(path, user_block_bytes, [&](std::string_view piece) { block += piece; });
  require(block.starts_with(checkpoint_magic),
          fmt::format("{}: not a lockstep checkpoint", path.string()));
  const int format = require_known_format(path, block);
  const std::uint64_t more = bytes_after(block, format), whole = std::filesystem::file_size(path);
  std::uint32_t checksum = 0;
  std::uint64_t bytes = 0, head = user_block_bytes;
  const auto add = [&](std::string_view piece) {
    piece.remove_prefix(std::exchange(head, 0));  // the first piece is longer
    checksum = crc32c(piece.data(), piece.size(), checksum);
    bytes += piece.size();
  };
  if (whole > user_block_bytes && more < whole - user_block_bytes)
    read_first(path, whole - more, add);
  require(bytes > 0 && block == user_block_of(checksum, bytes, more, format),
          fmt::format("{}: this checkpoint is torn or was altered: its checksum does not fit",
                      path.string()),
          Ending::bad_checkpoint);
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
