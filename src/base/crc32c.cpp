#include "lockstep/base/crc32c.hpp"

#include "base/crc32c_tables.hpp"

namespace lockstep {

std::uint32_t crc32c_portable(const void* data, std::size_t size, std::uint32_t crc) {
  const auto* at = static_cast<const std::uint8_t*>(data);
  crc = ~crc;
  for (; size >= 8; size -= 8, at += 8) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      next ^=
          slice_tables[7 - i][((crc >> (8 * i)) ^ at[i]) & 0xFF] ^ slice_tables[3 - i][at[4 + i]];
    }
    crc = next;
  }
  for (; size > 0; --size, ++at) crc = (crc >> 8) ^ slice_tables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t crc) {
  static const Crc32c chosen = fastest_crc32c();
  return chosen(data, size, crc);
}

}  // namespace lockstep
