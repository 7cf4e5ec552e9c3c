#include "lockstep/base/text/utf8.hpp"

#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_text.hpp"

namespace lockstep {

std::string valid_utf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(json_text(Json(text))).get<std::string>();
}

bool same_text(const std::string& a, const std::string& b) {
  return a == b || valid_utf8(a) == valid_utf8(b);
}

}  // namespace lockstep
