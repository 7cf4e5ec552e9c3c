// Why draws depend on position. The same crop for row 17 of epoch 3 on any rank, with any number of
// threads, and after a resume.

#include "lockstep/data/augment/augment.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "data/augment/reverse.hpp"
#include "data/augment/scale_and_shift.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/element_bytes.hpp"

namespace lockstep::data {
namespace {

// For short lines a call would take longer than the copy.
inline void copy_line(const std::uint8_t* from, std::size_t bytes, std::uint8_t* to) {
  constexpr std::size_t lane = 16, many = 16 * lane;
  if (bytes > many || bytes < lane) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto copy = [&](std::size_t at) { std::memcpy(to + at, from + at, lane); };
  for (std::size_t at = 0; at + lane < bytes; at += lane) copy(at);
  copy(bytes - lane);  // the rest; overlaps bytes already copied
}

/// Whole pixels; black ones where there is no pixel.
inline void fill_line(std::span<const std::uint8_t> pixel, std::size_t bytes, std::uint8_t* to) {
  if (pixel.empty()) {
    for (; bytes > 0; --bytes) *to++ = 0;
    return;
  }
  for (std::size_t i = 0, c = 0; i < bytes; ++i, c = c + 1 < pixel.size() ? c + 1 : 0)
    to[i] = pixel[c];
}

struct Span {
  std::size_t begin = 0, end = 0;
};

// The part of [begin, end) that lies within [0, size).
Span clipped(std::ptrdiff_t begin, std::ptrdiff_t end, std::size_t size) {
  const auto limit = static_cast<std::ptrdiff_t>(size);
  const std::ptrdiff_t first = std::clamp<std::ptrdiff_t>(begin, 0, limit);
  return {static_cast<std::size_t>(first),
          static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(end, first, limit))};
}

// Where a centred window begins when `room` is left over: at half of it, rounded half to even, as
// in torchvision's CenterCrop.
int middle(std::size_t room) {
  const std::size_t half = room / 2;
  return static_cast<int>(half + (room % 2 == 1 && half % 2 == 1 ? 1 : 0));
}

// Which bytes of an image form the lines of a crop.
struct Window {
  std::size_t line_bytes, before, copied, behind, skipped, height, width, pixel_bytes;
  std::ptrdiff_t down;
  bool flip;
  std::span<const std::uint8_t> border;

  Window(const AugmentSpec& spec, const RowPlacement& where, std::size_t tall, std::size_t across,
         std::size_t of_pixel, std::span<const std::uint8_t> around)
      : height(tall), width(across), pixel_bytes(of_pixel), flip(where.flip), border(around) {
    const std::size_t wide = spec.width > 0 ? spec.width : width;
    const auto pad = static_cast<std::ptrdiff_t>(spec.pad);
    const std::ptrdiff_t right = where.dx - pad;
    down = where.dy - pad;
    // Pixel x of the crop is pixel x + right of the image, where there is one.
    const Span columns = clipped(-right, static_cast<std::ptrdiff_t>(width) - right, wide);
    line_bytes = wide * pixel_bytes;
    copied = (columns.end - columns.begin) * pixel_bytes;
    skipped = right > 0 ? static_cast<std::size_t>(right) * pixel_bytes : 0;
    before = (flip ? wide - columns.end : columns.begin) * pixel_bytes;
    behind = line_bytes - before - copied;
  }

  void write(std::size_t y, const std::uint8_t* image, std::uint8_t* to) const {
    const std::ptrdiff_t line = static_cast<std::ptrdiff_t>(y) + down;
    if (line < 0 || line >= static_cast<std::ptrdiff_t>(height) || copied == 0) {
      if (border.empty())
        std::memset(to, 0, line_bytes);
      else
        fill_line(border, line_bytes, to);
      return;
    }
    const std::uint8_t* from =
        image + static_cast<std::size_t>(line) * width * pixel_bytes + skipped;
    fill_line(border, before, to);
    if (flip)
      reverse(from + copied, copied / pixel_bytes, pixel_bytes, to + before);
    else
      copy_line(from, copied, to + before);
    fill_line(border, behind, to + before + copied);
  }
};

}  // namespace

RowPlacement placement(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row,
                       std::size_t height, std::size_t width) {
  const std::size_t tall = spec.height > 0 ? spec.height : height;
  const std::size_t wide = spec.width > 0 ? spec.width : width;
  check(tall <= height + 2 * spec.pad && wide <= width + 2 * spec.pad, "the window fits");
  const std::size_t down = height + 2 * spec.pad - tall, right = width + 2 * spec.pad - wide;
  RowPlacement where;
  if (spec.crop == Crop::centre) {
    where.dy = middle(down);
    where.dx = middle(right);
  } else if (down + right > 0) {
    const Philox bits = draw4(spec.seed, epoch, row, Draw::crop);
    where.dy = static_cast<int>(below(bits.word[0], static_cast<std::uint32_t>(down + 1)));
    where.dx = static_cast<int>(below(bits.word[1], static_cast<std::uint32_t>(right + 1)));
  }
  if (spec.flip) where.flip = (draw(spec.seed, epoch, row, Draw::flip) & 1) != 0;
  if (spec.cutout > 0) {
    const Philox bits = draw4(spec.seed, epoch, row, Draw::cutout);
    where.cut_y = static_cast<int>(below(bits.word[0], static_cast<std::uint32_t>(tall)));
    where.cut_x = static_cast<int>(below(bits.word[1], static_cast<std::uint32_t>(wide)));
  }
  return where;
}

void augment(const AugmentSpec& spec, const RowPlacement& where, std::size_t height,
             std::size_t width, std::size_t pixel_bytes, std::span<const std::uint8_t> fill,
             const std::uint8_t* from, std::uint8_t* to, std::span<const std::uint8_t> border) {
  const std::size_t tall = spec.height > 0 ? spec.height : height;
  const std::size_t wide = spec.width > 0 ? spec.width : width;
  const Window window(spec, where, height, width, pixel_bytes, border);
  for (std::size_t y = 0; y < tall; ++y) window.write(y, from, to + y * window.line_bytes);
  cut_out(spec, where, tall, wide, pixel_bytes, fill, to);
}

void cut_out(const AugmentSpec& spec, const RowPlacement& where, std::size_t height,
             std::size_t width, std::size_t pixel_bytes, std::span<const std::uint8_t> fill,
             std::uint8_t* image) {
  if (spec.cutout == 0) return;
  const auto side = static_cast<std::ptrdiff_t>(spec.cutout);
  const std::ptrdiff_t top = where.cut_y - side / 2, left = where.cut_x - side / 2;
  const Span lines = clipped(top, top + side, height), columns = clipped(left, left + side, width);
  check(fill.size() == pixel_bytes, "a fill value for every channel");
  if (lines.begin == lines.end) return;
  const std::size_t bytes = (columns.end - columns.begin) * pixel_bytes,
                    line_bytes = width * pixel_bytes;
  std::uint8_t* const first = image + lines.begin * line_bytes + columns.begin * pixel_bytes;
  fill_line(fill, bytes, first);
  for (std::size_t y = 1; y < lines.end - lines.begin; ++y)
    copy_line(first, bytes, first + y * line_bytes);
}

std::vector<std::uint8_t> mean_pixel(const DataSetInfo& info) {
  const float unit = info.enter_as_bytes() ? 255 : 1;
  std::vector<std::uint8_t> pixel;
  for (std::size_t c = 0; c < info.mean.size(); ++c)
    append_element(info.element, unshaped(info.shaping, c, info.mean[c] * unit), pixel);
  return pixel;
}

void normalise(const DataSetInfo& info, std::span<const std::uint8_t> pixels, float* to) {
  float scale[pixel_period], shift[pixel_period];
  for (std::size_t i = 0; i < pixel_period; ++i) {
    const std::size_t c = i % info.channels;
    scale[i] = 1 / (255 * info.stddev[c]);
    shift[i] = -info.mean[c] / info.stddev[c];
  }
  scale_and_shift(pixels.data(), pixels.size(), scale, shift, to);
}

}  // namespace lockstep::data
