#pragma once

#include <utility>

#include <fmt/core.h>

#include "lockstep/base/http.hpp"

namespace lockstep::serve {

/// Throws RequestError 400 when `condition` does not hold. The sentence is only made then.
template <class... Values>
void expect(bool condition, fmt::format_string<Values...> sentence, Values&&... values) {
  if (!condition) throw RequestError(400, fmt::format(sentence, std::forward<Values>(values)...));
}

}  // namespace lockstep::serve
