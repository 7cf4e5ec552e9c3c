#include "ports/cpu/plan/bands.hpp"

#include <algorithm>

namespace lockstep::cpu {
namespace {

Band band(const WindowLines& window, std::size_t image, std::size_t first, std::size_t count) {
  // In lines of the padded image.
  const std::size_t begin = first * window.stride,
                    end = (first + count - 1) * window.stride + window.kernel;
  const std::size_t top = window.padding, bottom = top + window.height;
  const std::size_t in_begin = std::max(begin, top), in_end = std::min(end, bottom);
  return {.image = image,
          .first = first,
          .count = count,
          .in_first = in_begin - top,
          .in_count = in_end - in_begin,
          .above = in_begin - begin,
          .below = end - in_end};
}

}  // namespace

std::vector<Band> bands_of(const WindowLines& window, std::size_t rows, std::size_t lane,
                           std::size_t lanes) {
  const std::size_t lines = window.out_height;
  const std::size_t begin = rows * lines * lane / lanes, end = rows * lines * (lane + 1) / lanes;
  std::vector<Band> bands;
  for (std::size_t at = begin; at < end;) {
    const std::size_t image = at / lines, first = at % lines;
    const std::size_t count = std::min(lines - first, end - at);
    bands.push_back(band(window, image, first, count));
    at += count;
  }
  return bands;
}

}  // namespace lockstep::cpu
