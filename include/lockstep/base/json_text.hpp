#pragma once

#include <string>

namespace lockstep {

/// A JSON value (nlohmann's, of either order) as text, on one line or indented. Bytes that are not
/// UTF-8, as a path may have them, become U+FFFD: a report is never lost to a name.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep
