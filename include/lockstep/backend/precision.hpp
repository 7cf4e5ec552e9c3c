#pragma once

#include <string>

#include "lockstep/base/text/choices.hpp"

namespace lockstep::backend {

enum class Precision { fp32, tf32, bf16, fp16 };

/// fp16's range is too small for unscaled gradients.
constexpr bool has_loss_scale(Precision precision) { return precision == Precision::fp16; }

}  // namespace lockstep::backend

template <>
struct lockstep::Choices<lockstep::backend::Precision> {
  using enum lockstep::backend::Precision;
  static constexpr Choice<lockstep::backend::Precision> all[] = {
      {fp32, "fp32"}, {tf32, "tf32"}, {bf16, "bf16"}, {fp16, "fp16"}};
};

namespace lockstep::backend {

/// Throws InputError listing the known ones.
inline Precision parse_precision(const std::string& text) {
  return parse_choice<Precision>(text, "precision");
}
inline const char* to_string(Precision precision) { return choice_name(precision); }

}  // namespace lockstep::backend
