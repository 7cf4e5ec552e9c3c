// Which lines go with which, compared with a search of all of them.
#include "lockstep/nn/lines.hpp"

#include <catch2/catch.hpp>

using namespace lockstep::nn;

namespace {

/// Line `tap` of the window of output line `out` in lines of the input; negative above it.
long read_line(const WindowLines& w, std::size_t out, std::size_t tap) {
  return static_cast<long>(out * w.stride + tap) - static_cast<long>(w.padding);
}

bool reads(const WindowLines& w, std::size_t out, const LineRange& in) {
  for (std::size_t tap = 0; tap < w.kernel; ++tap) {
    const long line = read_line(w, out, tap);
    if (line >= static_cast<long>(in.first) && line < static_cast<long>(in.end())) return true;
  }
  return false;
}

/// All that is wrong with the lines of one band.
std::string wrong(const WindowLines& w, const LineRange& out, const LineRange& in) {
  const Reach read = read_by(w, out);
  const long top = read_line(w, out.first, 0), bottom = read_line(w, out.end() - 1, w.kernel - 1);
  const long height = static_cast<long>(w.height);
  if (static_cast<long>(read.lines.first) != std::max(0l, top)) return "the first line read";
  if (static_cast<long>(read.lines.end()) != std::min(height, bottom + 1)) return "the last";
  if (static_cast<long>(read.above) != std::max(0l, -top)) return "padding above";
  if (static_cast<long>(read.below) != std::max(0l, bottom + 1 - height)) return "padding below";

  const ReaderLines readers = readers_of(w, in);
  for (std::size_t o = 0; o < w.out_height; ++o) {
    const bool listed = o >= readers.lines.first && o < readers.lines.end();
    // A window of few lines and a long stride may read none between two that do.
    if (reads(w, o, in) && !listed) return "a reader is missing";
  }
  if (readers.lines.count == 0)
    return readers.idle_above + readers.idle_below == in.count ? "" : "idle";
  if (!reads(w, readers.lines.first, in) || !reads(w, readers.lines.end() - 1, in))
    return "an idle reader at an end";
  // As a window over the lines that are not idle.
  const std::size_t lines = in.count - readers.idle_above - readers.idle_below;
  if (read_line(w, readers.lines.first, 0) !=
      static_cast<long>(in.first + readers.idle_above) - static_cast<long>(readers.above))
    return "lines above";
  if (readers.above + lines + readers.below != (readers.lines.count - 1) * w.stride + w.kernel)
    return "lines below";
  return "";
}

}  // namespace

TEST_CASE("the plan of lines is what a search of all lines finds", "[lines]") {
  for (std::size_t kernel = 1; kernel <= 7; ++kernel)
    for (std::size_t stride = 1; stride <= 3; ++stride)
      for (std::size_t padding = 0; padding < kernel; ++padding)
        for (std::size_t height = 1; height <= 40; ++height) {
          if (height + 2 * padding < kernel) continue;
          const WindowLines w{height, (height + 2 * padding - kernel) / stride + 1, kernel, stride,
                              padding};
          for (std::size_t parts = 1; parts <= std::min<std::size_t>(8, w.out_height); ++parts)
            for (std::size_t part = 0; part < parts; ++part) {
              const LineRange out = even_lines(w.out_height, part, parts),
                              in = even_lines(height, part, parts);
              const std::string what = wrong(w, out, in);
              if (what.empty()) continue;
              INFO(kernel << " " << stride << " " << padding << " " << height << ": " << part
                          << " of " << parts);
              CHECK(what == "");
            }
        }
}

TEST_CASE("lines are cut evenly, each in one part", "[lines]") {
  for (std::size_t height = 1; height <= 40; ++height)
    for (std::size_t parts = 1; parts <= 8; ++parts) {
      std::size_t next = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        const LineRange lines = even_lines(height, part, parts);
        CHECK(lines.first == next);
        CHECK((lines.count == height / parts || lines.count == (height + parts - 1) / parts));
        next = lines.end();
      }
      CHECK(next == height);
    }
  CHECK(covering({3, 2}, {7, 1}) == LineRange{3, 5});
  CHECK(covering({3, 0}, {7, 1}) == LineRange{7, 1});
}
