#include "lockstep/base/text/choices.hpp"

#include <fmt/core.h>

#include "lockstep/base/text/join.hpp"

namespace lockstep {

InputError unknown_choice(std::string_view text, std::string_view what,
                          const std::vector<std::string>& names) {
  return InputError(fmt::format("{}: '{}' is not known; choose {}", what, text, join(names, ", ")));
}

}  // namespace lockstep
