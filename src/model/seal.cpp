#include "model/seal.hpp"

#include <array>
#include <charconv>
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

}  // namespace

std::string user_block(std::string_view hdf5_part, int format) {
  std::string block = fmt::format("{}{}\ncrc32c 0x{:08x}\nbytes {}\n", checkpoint_magic, format,
                                  crc32c(hdf5_part.data(), hdf5_part.size()), hdf5_part.size());
  block.resize(user_block_bytes, '\0');
  return block;
}

int verified_format(const std::filesystem::path& path) {
  const std::string bytes = read_text(path);
  require(bytes.starts_with(checkpoint_magic),
          fmt::format("{}: not a lockstep checkpoint", path.string()));
  const std::string_view all = bytes;
  const int format = require_known_format(path, all);
  require(all.size() > user_block_bytes &&
              all.substr(0, user_block_bytes) == user_block(all.substr(user_block_bytes), format),
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
