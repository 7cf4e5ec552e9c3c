#include <fmt/core.h>

#include "lockstep/backend/precision.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::backend {

Precision parse_precision(const std::string& text) {
  return parse_choice<Precision>(text, "precision");
}

const char* to_string(Precision precision) { return choice_name(precision); }

void require_fusable(bool fuse_norms, Precision precision) {
  require(
      !fuse_norms || precision == Precision::fp16,
      fmt::format("--fuse-norms would have no effect: --precision is {}, and the engines for it "
                  "are fp16's",
                  to_string(precision)));
}

}  // namespace lockstep::backend
