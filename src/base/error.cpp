#include "lockstep/base/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {

Ending ending_in(std::string_view text) {
  constexpr std::array signs = {
      std::pair{"No space left", Ending::disk_full},
      std::pair{"Disk quota", Ending::disk_full},
      std::pair{"bad_alloc", Ending::out_of_memory},
      std::pair{"out of memory", Ending::out_of_memory},
      std::pair{"Cannot allocate memory", Ending::out_of_memory},
      std::pair{"unable to allocate memory", Ending::out_of_memory},
      std::pair{"Stale file handle", Ending::file_system},
      std::pair{"Input/output error", Ending::file_system},
  };
  const auto* sign = std::ranges::find_if(
      signs, [&](const auto& one) { return text.find(one.first) != std::string_view::npos; });
  return sign == signs.end() ? Ending::unknown : sign->second;
}

Ending ending_of(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  if (own && own->ending != Ending::unknown) return own->ending;
  return ending_in(error.what());
}

}  // namespace lockstep
