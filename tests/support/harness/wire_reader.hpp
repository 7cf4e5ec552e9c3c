#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/wire.hpp"

namespace lockstep::test {

/// A message of protocol buffers, read back: its fields by number. Each method throws for bytes
/// that are no message.
class WireReader {
 public:
  struct Field {
    std::uint32_t number = 0;
    std::uint64_t value = 0;  ///< of numbers, as their bits
    std::string bytes;        ///< of texts and messages
  };

  explicit WireReader(std::string_view message) {
    each_field(message, [&](const WireField& field) {
      fields_.push_back({field.number, field.value, std::string(field.bytes)});
    });
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
