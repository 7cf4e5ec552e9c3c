#include "lockstep/base/wire.hpp"

#include <bit>

namespace lockstep {

void put_little_endian(std::string& bytes, std::uint64_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

// The types of the wire: 0 a varint, 1 eight bytes, 2 bytes after their length, 5 four bytes.
void WireMessage::put_key(std::uint32_t field, std::uint32_t wire_type) {
  put_varint(std::uint64_t{field} << 3 | wire_type);
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
void WireMessage::put_varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
  bytes_ += static_cast<char>(value);
}

WireMessage& WireMessage::number(std::uint32_t field, std::uint64_t value) {
  put_key(field, 0);
  put_varint(value);
  return *this;
}

WireMessage& WireMessage::real32(std::uint32_t field, float value) {
  put_key(field, 5);
  put_little_endian(bytes_, std::bit_cast<std::uint32_t>(value), 4);
  return *this;
}

WireMessage& WireMessage::real64(std::uint32_t field, double value) {
  put_key(field, 1);
  put_little_endian(bytes_, std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

WireMessage& WireMessage::text(std::uint32_t field, std::string_view bytes) {
  put_key(field, 2);
  put_varint(bytes.size());
  bytes_ += bytes;
  return *this;
}

}  // namespace lockstep
