#pragma once

#include <cstddef>

namespace lockstep::data {

/// A rectangle of an image, in pixels.
struct Box {
  std::size_t top = 0, left = 0, height = 0, width = 0;
  bool operator==(const Box&) const = default;
};

/// One axis of a resampling: the pixels [begin, begin + length) are stretched to `target` pixels.
/// Only [first, first + count) of these are wanted. Pixels outside contribute nothing, as if the
/// image ended there.
struct Axis {
  std::size_t begin = 0, length = 0, target = 0, first = 0, count = 0;
  bool operator==(const Axis&) const = default;
};

/// Consecutive pixels of one axis.
struct PixelRun {
  std::size_t begin = 0, end = 0;
};

}  // namespace lockstep::data
