#include "lockstep/base/text/printable.hpp"

#include <fmt/core.h>

namespace lockstep {
namespace {

unsigned at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
}

bool continues(unsigned byte) { return byte >= 0x80 && byte < 0xC0; }

/// The bytes of the character at `i`; 0 where none is, or one that controls a terminal.
std::size_t shown(std::string_view text, std::size_t i) {
  const unsigned first = at(text, i), second = at(text, i + 1);
  if (first < 0x80) return first >= ' ' && first != 0x7F ? 1 : 0;
  if (first < 0xC2 || first > 0xF4 || !continues(second)) return 0;
  if (first < 0xE0) return first == 0xC2 && second < 0xA0 ? 0 : 2;  // U+0080 to U+009F
  if (!continues(at(text, i + 2))) return 0;
  if (first < 0xF0)
    return (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ? 0 : 3;
  if (!continues(at(text, i + 3))) return 0;
  return (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F) ? 0 : 4;
}

std::string visible(std::string_view text, bool lines) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const std::size_t count = lines && (c == '\n' || c == '\t') ? 1 : shown(text, i);
    result += count > 0   ? std::string(text.substr(i, count))
              : c == '\n' ? "\\n"
              : c == '\t' ? "\\t"
                          : fmt::format("\\x{:02x}", at(text, i));
    i += count > 0 ? count : 1;
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return visible(text, true); }
std::string one_line(std::string_view text) { return visible(text, false); }

std::string as_bytes(std::string_view text) {
  std::string result;
  for (const char c : one_line(text))
    result += at({&c, 1}, 0) < 0x80 ? std::string(1, c) : fmt::format("\\x{:02x}", at({&c, 1}, 0));
  return result;
}

}  // namespace lockstep
