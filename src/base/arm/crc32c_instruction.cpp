#include <sys/auxv.h>

#include <arm_acle.h>

#include "base/crc32c_tables.hpp"
#include "lockstep/base/crc32c.hpp"

#define CRC_TARGET "+crc"

namespace lockstep {
namespace {

[[gnu::target(CRC_TARGET), gnu::always_inline]] inline std::uint32_t add_word(std::uint64_t crc,
                                                                              std::uint64_t word) {
  return __crc32cd(static_cast<std::uint32_t>(crc), word);
}

[[gnu::target(CRC_TARGET), gnu::always_inline]] inline std::uint32_t add_byte(std::uint32_t crc,
                                                                              std::uint8_t byte) {
  return __crc32cb(crc, byte);
}

#include "base/crc32c_lanes.inc"

}  // namespace

// Armv8.0 may lack the instruction; from 8.1 on, all have it.
Crc32c fastest_crc32c() {
  return ::getauxval(AT_HWCAP) & HWCAP_CRC32 ? crc32c_instruction : crc32c_portable;
}

}  // namespace lockstep
