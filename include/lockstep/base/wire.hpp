#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// The wire format of protocol buffers, for files that other programs read or wrote
// (protobuf.dev/programming-guides/encoding). The numbers and types of fields are those of the
// message's .proto file.
namespace lockstep {

/// The forms that a field has on the wire. Groups, 3 and 4, are no longer written.
enum class WireType : std::uint8_t {
  number = 0,  ///< seven bits a byte, the lowest first; the highest bit says that more follow
  real64 = 1,  ///< eight bytes
  text = 2,    ///< bytes after their count: a text, a message, or numbers without keys ("packed")
  real32 = 5,  ///< four bytes
};

/// A message to write: its fields are in the order of the calls, so the same calls give the same
/// bytes. A field that is repeated is written once for each of its values.
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
  void put_key(std::uint32_t field, WireType type);
  std::string bytes_;
};

/// A field of a message that is read.
struct WireField {
  std::uint32_t number = 0;  ///< from 1
  WireType type = WireType::number;
  std::uint64_t value = 0;  ///< of a number; the bits of a real
  std::string_view bytes;   ///< of a text, in the message

  /// The value, which must be of that type: else InputError names the field.
  std::uint64_t as_number() const;
  float as_real32() const;
  std::string_view as_text() const;
};

/// Takes the fields of a message one after the other, and copies nothing. The message may come from
/// anyone: inner messages are texts until the caller reads them, so that the caller decides how
/// deep it goes.
class WireFields {
 public:
  /// `message` must live as long as the fields are used.
  explicit WireFields(std::string_view message) : left_(message) {}

  /// False after the last field. Throws InputError that says what is wrong with "it" when the bytes
  /// are no field: cut off, of a type that the wire does not have, or a number beyond 64 bits.
  bool next(WireField& field);

 private:
  std::string_view left_;
};

/// Calls take(field) with each field of a message. Throws InputError as WireFields::next does.
template <class Take>
void each_field(std::string_view message, Take&& take) {
  WireFields fields(message);
  for (WireField field; fields.next(field);) take(field);
}

/// Appends a number as the wire has it.
void put_varint(std::string& bytes, std::uint64_t value);

/// Takes such a number from the front. Throws InputError as WireFields::next does.
std::uint64_t take_varint(std::string_view& bytes);

/// Appends a number's bytes, the lowest first.
void put_little_endian(std::string& bytes, std::uint64_t value, std::size_t count);
/// The number of such bytes, at most 8.
std::uint64_t from_little_endian(std::string_view bytes);

}  // namespace lockstep
