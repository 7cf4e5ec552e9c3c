#include <fmt/core.h>

#include "lockstep/backend/precision.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep {

Precision parse_precision(const std::string& text) {
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16})
    if (text == to_string(precision)) return precision;
  throw InputError(
      fmt::format("precision '{}' is not known; choose fp32, tf32, bf16 or fp16", text));
}

const char* to_string(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
  }
  throw Error("a precision without a name");
}

void require_fusable(bool fuse_norms, Precision precision) {
  require(
      !fuse_norms || precision == Precision::fp16,
      fmt::format("--fuse-norms would have no effect: --precision is {}, and the engines for it "
                  "are fp16's",
                  to_string(precision)));
}

}  // namespace lockstep
