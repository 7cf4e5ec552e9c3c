#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected, RFC 3720 B.4) of `size` bytes, continuing
/// from `crc` (0 to begin). crc32c("123456789") = 0xE3069283. Uses the processor's instruction
/// where it has one.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t crc = 0);

/// The same with tables, on any processor: the fallback of crc32c(), which is tested against it.
std::uint32_t crc32c_portable(const void* data, std::size_t size, std::uint32_t crc = 0);

}  // namespace lockstep
