#pragma once

#include <string>

namespace lockstep {

/// A JSON value (nlohmann's, of either order) as text, on one line or indented. Bytes that are not
/// UTF-8 (a path may have them) become U+FFFD, so that a name never costs us the report.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep
