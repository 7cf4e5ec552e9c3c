#include "lockstep/backend/precision.hpp"

namespace lockstep::backend {

Precision parse_precision(const std::string& text) {
  return parse_choice<Precision>(text, "precision");
}

const char* to_string(Precision precision) { return choice_name(precision); }

}  // namespace lockstep::backend
