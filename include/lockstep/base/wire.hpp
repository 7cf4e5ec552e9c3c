#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// A message in the wire format of protocol buffers, for files that other programs read: it writes
/// fields in the order of the calls, so the same calls give the same bytes
/// (protobuf.dev/programming-guides/encoding). The numbers and types of fields are those of the
/// message's .proto file. A field that is repeated is written once for each of its values.
class WireMessage {
 public:
  /// A whole number, enumeration or bool. A negative int is its two's complement in 64 bits.
  WireMessage& number(std::uint32_t field, std::uint64_t value);
  WireMessage& real32(std::uint32_t field, float value);           ///< float
  WireMessage& real64(std::uint32_t field, double value);          ///< double
  WireMessage& text(std::uint32_t field, std::string_view bytes);  ///< string or bytes
  WireMessage& message(std::uint32_t field, const WireMessage& inner) {
    return text(field, inner.bytes_);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  void put_key(std::uint32_t field, std::uint32_t wire_type);
  void put_varint(std::uint64_t value);
  std::string bytes_;
};

/// Appends a number's bytes, the lowest first.
void put_little_endian(std::string& bytes, std::uint64_t value, std::size_t count);

}  // namespace lockstep
