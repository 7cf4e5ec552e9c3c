#pragma once

#include <cstddef>

namespace lockstep {

/// The size of part `index` when `rows` are cut into `parts` as evenly as possible; the lower parts
/// get the extra rows.
constexpr std::size_t even_share(std::size_t rows, std::size_t parts, std::size_t index) {
  return rows / parts + (index < rows % parts ? 1 : 0);
}

/// The fewest parts of which none is larger than the largest of `parts`.
constexpr std::size_t fewest_parts(std::size_t rows, std::size_t parts) {
  const std::size_t largest = even_share(rows, parts, 0);
  return largest == 0 ? 0 : (rows + largest - 1) / largest;
}

/// How many rows the parts before `index` have together.
constexpr std::size_t even_begin(std::size_t rows, std::size_t parts, std::size_t index) {
  const std::size_t larger = index < rows % parts ? index : rows % parts;
  return index * (rows / parts) + larger;
}

/// The part that holds a row, and the row's index within it.
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
