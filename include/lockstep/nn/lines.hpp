#pragma once

#include <cstddef>

#include "lockstep/nn/network.hpp"

namespace lockstep::nn {

// Where an image is cut into bands of lines: which lines of one map go with which of the next. For
// example a window of 3 lines with stride 1 and padding 1, over maps of 8 lines, cut in two:
//
//        input            output         an output line reads the line above and the one below, so
//       +------+         +------+        the upper band of outputs, [0, 4), reads the inputs [0, 5)
//       | 0..3 |  \      | 0..3 |        and a line of padding above; and what gives the upper
//       |------|   =>    |------|        band of inputs their gradient are the outputs [0, 5).
//       | 4..7 |  /      | 4..7 |
//       +------+         +------+

/// Consecutive lines.
struct LineRange {
  std::size_t first = 0, count = 0;
  std::size_t end() const { return first + count; }
  LineRange after(std::size_t lines) const { return {lines + first, count}; }
  bool operator==(const LineRange&) const = default;
};

/// Part `part` of `parts` of a map's lines: even, without a rest.
LineRange even_lines(std::size_t height, std::size_t part, std::size_t parts);

/// The lines from the first of the two to the last.
LineRange covering(const LineRange& one, const LineRange& other);

/// The lines of every map that a rank has, where several ranks share each image: even parts.
struct TilePlace {
  std::size_t index = 0, count = 1;
  bool is_whole() const { return count == 1; }
  LineRange of(std::size_t height) const { return even_lines(height, index, count); }
};

/// In how many parts an image can be cut so that each has lines of every map that has windows.
std::size_t most_tiles(const Network& network);

/// The lines that are in both.
LineRange common(const LineRange& one, const LineRange& other);

/// How a window of `kernel` lines moves over an image. The padding is below `kernel`.
struct WindowLines {
  std::size_t height, out_height, kernel, stride, padding;
};

/// The lines on the other side of a window, and how many lines of the outermost windows lie above
/// and below the given side's lines.
struct Reach {
  LineRange lines;
  std::size_t above = 0, below = 0;
};

/// The input lines that some output lines read; above and below them is padding. REQUIRES: out is
/// not empty.
Reach read_by(const WindowLines& window, const LineRange& out);

/// The output lines that read some input lines: those whose gradients they need. As a window over
/// these input lines alone, without the idle ones, it has lines above and below them, as if they
/// were padding.
struct ReaderLines : Reach {
  std::size_t idle_above = 0, idle_below = 0;  ///< input lines at the ends that no window reads
};
ReaderLines readers_of(const WindowLines& window, const LineRange& in);

}  // namespace lockstep::nn
