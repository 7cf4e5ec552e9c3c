#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include <fmt/format.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/model/checkpoint.hpp"

namespace lockstep::test {

inline constexpr std::size_t user_block_bytes = 512;

/// Writes the checksum of the rest of the file into a checkpoint's user block, as anyone can.
inline void seal(std::span<char> file, int format = model::checkpoint_format) {
  const std::span<char> rest = file.subspan(user_block_bytes);
  const std::string block =
      fmt::format("lockstep checkpoint {}\ncrc32c 0x{:08x}\nbytes {}\n", format,
                  lockstep::crc32c(rest.data(), rest.size()), rest.size());
  std::fill(file.begin(), file.begin() + user_block_bytes, '\0');
  std::copy(block.begin(), block.end(), file.begin());
}

}  // namespace lockstep::test
