#include "lockstep/base/text/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_text.hpp"

namespace lockstep {

std::string number_text(double value, Form form) {
  if (!std::isfinite(value)) return "null";
  if (form == Form::mean) return fmt::format("{:.9g}", value);
  if (form == Form::plain) return json_text(nlohmann::json(value));
  return fmt::format("{:.{}f}", value, form == Form::share ? 6 : form == Form::ms ? 3 : 1);
}

std::string number_text(float value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string json_string(std::string_view text) {
  const bool plain = std::ranges::all_of(
      text, [](char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; });
  return plain ? fmt::format("\"{}\"", text) : json_text(nlohmann::json(text));
}

}  // namespace lockstep
