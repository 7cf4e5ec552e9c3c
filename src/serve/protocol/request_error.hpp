#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::serve {

/// What a client is told: a status of HTTP and one sentence.
class RequestError : public InputError {
 public:
  RequestError(unsigned status, const std::string& what) : InputError(what), status_(status) {}
  unsigned status() const { return status_; }

 private:
  unsigned status_;
};

/// Throws RequestError 400 when `condition` does not hold. The sentence is only made then.
template <class... Values>
void expect(bool condition, fmt::format_string<Values...> sentence, Values&&... values) {
  if (!condition) throw RequestError(400, fmt::format(sentence, std::forward<Values>(values)...));
}

}  // namespace lockstep::serve
