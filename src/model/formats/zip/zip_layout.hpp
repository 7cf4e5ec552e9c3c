#pragma once

#include <cstddef>
#include <cstdint>

// Numbers of PKWARE's APPNOTE.TXT: a zip is its members, each after a local header; a directory
// with an entry for each; and the directory's end. Numbers are little-endian.
namespace lockstep::model {

inline constexpr std::uint32_t local_mark = 0x04034b50, entry_mark = 0x02014b50,
                               end_mark = 0x06054b50, end64_mark = 0x06064b50,
                               locator64_mark = 0x07064b50;
inline constexpr std::size_t local_bytes = 30, entry_bytes = 46, end_bytes = 22, end64_bytes = 56,
                             locator64_bytes = 20;
inline constexpr std::uint16_t stored = 0, deflated = 8;
inline constexpr std::size_t longest_comment = 0xffff;
/// A number that does not fit, so that a longer field has it.
inline constexpr std::uint32_t too_large_32 = 0xffffffff;

}  // namespace lockstep::model
