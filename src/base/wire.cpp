#include "lockstep/base/wire.hpp"

#include <bit>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"

namespace lockstep {
namespace {

constexpr unsigned bits_each = 7, type_bits = 3, number_bits = 64;
constexpr std::uint64_t more_follow = 0x80, type_mask = 7;
constexpr std::uint64_t largest_field = (std::uint64_t{1} << 29) - 1;

/// The bytes of a field.
std::string_view take_bytes(std::string_view& from, std::uint64_t count, std::uint64_t field) {
  require(count <= from.size(),
          fmt::format("it is cut off: its field {} has {} bytes, of which {} are there", field,
                      count, from.size()));
  const std::string_view taken = from.substr(0, count);
  from.remove_prefix(count);
  return taken;
}

void require_type(const WireField& field, WireType type) {
  require(field.type == type, fmt::format("its field {} is of another type", field.number));
}

}  // namespace

std::uint64_t from_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

void put_little_endian(std::string& bytes, std::uint64_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

void put_varint(std::string& bytes, std::uint64_t value) {
  for (; value >= more_follow; value >>= bits_each)
    bytes += static_cast<char>(value % more_follow | more_follow);
  bytes += static_cast<char>(value);
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < number_bits; shift += bits_each) {
    require(!bytes.empty(), "it is cut off within a number");
    const std::uint64_t byte = static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    const std::uint64_t part = byte % more_follow;
    require(part << shift >> shift == part, "it has a number of more than 64 bits");
    value |= part << shift;
    if (byte < more_follow) return value;
  }
  throw InputError("it has a number of more than ten bytes");
}

void WireMessage::put_key(std::uint32_t field, WireType type) {
  put_varint(bytes_, std::uint64_t{field} << type_bits | static_cast<std::uint64_t>(type));
}

WireMessage& WireMessage::number(std::uint32_t field, std::uint64_t value) {
  put_key(field, WireType::number);
  put_varint(bytes_, value);
  return *this;
}

WireMessage& WireMessage::real32(std::uint32_t field, float value) {
  put_key(field, WireType::real32);
  put_little_endian(bytes_, std::bit_cast<std::uint32_t>(value), sizeof value);
  return *this;
}

WireMessage& WireMessage::real64(std::uint32_t field, double value) {
  put_key(field, WireType::real64);
  put_little_endian(bytes_, std::bit_cast<std::uint64_t>(value), sizeof value);
  return *this;
}

WireMessage& WireMessage::text(std::uint32_t field, std::string_view bytes) {
  put_key(field, WireType::text);
  put_varint(bytes_, bytes.size());
  bytes_ += bytes;
  return *this;
}

std::uint64_t WireField::as_number() const {
  require_type(*this, WireType::number);
  return value;
}

float WireField::as_real32() const {
  require_type(*this, WireType::real32);
  return std::bit_cast<float>(static_cast<std::uint32_t>(value));
}

std::string_view WireField::as_text() const {
  require_type(*this, WireType::text);
  return bytes;
}

bool WireFields::next(WireField& field) {
  if (left_.empty()) return false;
  const std::uint64_t key = take_varint(left_), number = key >> type_bits;
  require(number >= 1 && number <= largest_field,
          fmt::format("it has a field {}, which no message has", number));
  field = {.number = static_cast<std::uint32_t>(number),
           .type = static_cast<WireType>(key & type_mask),
           .value = 0,
           .bytes = {}};
  switch (field.type) {
    case WireType::number:
      field.value = take_varint(left_);
      return true;
    case WireType::real64:
      field.value = from_little_endian(take_bytes(left_, sizeof(std::uint64_t), number));
      return true;
    case WireType::text:
      field.bytes = take_bytes(left_, take_varint(left_), number);
      return true;
    case WireType::real32:
      field.value = from_little_endian(take_bytes(left_, sizeof(std::uint32_t), number));
      return true;
  }
  throw InputError(
      fmt::format("its field {} is of a type {} that no message has", number, key & type_mask));
}

}  // namespace lockstep
