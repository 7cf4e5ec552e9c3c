#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::cpu {

/// How a window of `kernel` lines moves over an image.
struct WindowLines {
  std::size_t height, out_height, kernel, stride, padding;
};

/// Some lines of one image's output, and what they read: lines of the input, and lines of padding
/// above and below those.
struct Band {
  std::size_t image, first, count;
  std::size_t in_first = 0, in_count = 0, above = 0, below = 0;
};

/// What one lane makes where lanes share the rows of a batch: about as many lines as each other
/// lane, in bands of one image.
std::vector<Band> bands_of(const WindowLines& window, std::size_t rows, std::size_t lane,
                           std::size_t lanes);

}  // namespace lockstep::cpu
