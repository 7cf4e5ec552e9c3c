#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::test {

/// A message of protocol buffers, read back. Each method throws for bytes that are no message.
class WireReader {
 public:
  struct Field {
    std::uint32_t number = 0;
    std::uint64_t value = 0;  ///< of numbers, as their bits
    std::string bytes;        ///< of texts and messages
  };

  explicit WireReader(std::string_view message) {
    while (!message.empty()) {
      const std::uint64_t key = varint(message);
      Field field{.number = static_cast<std::uint32_t>(key >> 3), .bytes = {}};
      switch (key & 7) {
        case 0:
          field.value = varint(message);
          break;
        case 1:
          field.value = little_endian(cut(message, 8));
          break;
        case 2:
          field.bytes = cut(message, varint(message));
          break;
        case 5:
          field.value = little_endian(cut(message, 4));
          break;
        default:
          throw std::runtime_error("a type that the wire does not have");
      }
      fields_.push_back(field);
    }
  }

  const std::vector<Field>& fields() const { return fields_; }
  std::vector<Field> all(std::uint32_t number) const {
    std::vector<Field> found;
    for (const Field& field : fields_)
      if (field.number == number) found.push_back(field);
    return found;
  }
  bool has(std::uint32_t number) const { return !all(number).empty(); }
  std::uint64_t number(std::uint32_t field) const { return only(field).value; }
  float real32(std::uint32_t field) const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(only(field).value));
  }
  double real64(std::uint32_t field) const { return std::bit_cast<double>(only(field).value); }
  std::string text(std::uint32_t field) const { return only(field).bytes; }
  WireReader message(std::uint32_t field) const { return WireReader(only(field).bytes); }
  std::vector<WireReader> messages(std::uint32_t number) const {
    std::vector<WireReader> found;
    for (const Field& field : all(number)) found.emplace_back(field.bytes);
    return found;
  }

  static std::string_view cut(std::string_view& bytes, std::uint64_t count) {
    if (count > bytes.size()) throw std::runtime_error("the bytes end within a field");
    const std::string_view first = bytes.substr(0, count);
    bytes.remove_prefix(count);
    return first;
  }
  static std::uint64_t little_endian(std::string_view bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }

 private:
  static std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(cut(bytes, 1)[0]);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("a number of more than 64 bits");
  }
  const Field& only(std::uint32_t number) const {
    const Field* found = nullptr;
    for (const Field& field : fields_)
      if (field.number == number) {
        if (found != nullptr) throw std::runtime_error("a field that is there twice");
        found = &field;
      }
    if (found == nullptr) throw std::runtime_error("no field " + std::to_string(number));
    return *found;
  }

  std::vector<Field> fields_;
};

}  // namespace lockstep::test
