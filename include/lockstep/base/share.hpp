#pragma once

#include <cstddef>

namespace lockstep {

/// The part of `rows` that is number `index` of `parts`: as even as can be, the lower ones one
/// more.
constexpr std::size_t even_share(std::size_t rows, std::size_t parts, std::size_t index) {
  return rows / parts + (index < rows % parts ? 1 : 0);
}

}  // namespace lockstep
