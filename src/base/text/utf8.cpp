#include "lockstep/base/text/utf8.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_text.hpp"

namespace lockstep {
namespace {

std::string escaped(std::string_view text, bool all_but_ascii) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      line += "\\n";
    else if (byte < ' ' || byte == 0x7F || (all_but_ascii && byte > 0x7F))
      line += fmt::format("\\x{:02x}", byte);
    else
      line += c;
  }
  return line;
}

}  // namespace

std::string valid_utf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(json_text(Json(text))).get<std::string>();
}

std::string one_line(std::string_view text) { return escaped(text, false); }

std::string as_bytes(std::string_view text) { return escaped(text, true); }

bool same_text(const std::string& a, const std::string& b) {
  return a == b || valid_utf8(a) == valid_utf8(b);
}

}  // namespace lockstep
