#pragma once

#include <cstddef>

namespace lockstep {

/// The part of `rows` that is number `index` of `parts`: as even as can be, the lower ones one
/// more.
constexpr std::size_t even_share(std::size_t rows, std::size_t parts, std::size_t index) {
  return rows / parts + (index < rows % parts ? 1 : 0);
}

/// The rows of the parts before number `index`.
constexpr std::size_t even_begin(std::size_t rows, std::size_t parts, std::size_t index) {
  const std::size_t larger = index < rows % parts ? index : rows % parts;
  return index * (rows / parts) + larger;
}

/// In which part a row lies, and which of its rows it is.
struct EvenPlace {
  std::size_t part = 0, index = 0;
};
constexpr EvenPlace even_place(std::size_t rows, std::size_t parts, std::size_t row) {
  const std::size_t each = rows / parts, larger = rows % parts;
  const std::size_t of_larger = larger * (each + 1);
  if (row < of_larger) return {row / (each + 1), row % (each + 1)};
  return {larger + (row - of_larger) / each, (row - of_larger) % each};
}

}  // namespace lockstep
