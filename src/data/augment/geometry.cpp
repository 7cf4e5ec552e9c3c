#include "data/augment/geometry.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/image/image.hpp"

namespace lockstep::data {
namespace {

constexpr int crop_tries = 10;
constexpr double narrowest_crop = 3.0 / 4, widest_crop = 4.0 / 3;

/// The random words of one try; the upper half of the counter is free for it (base/rng.hpp).
Philox words_of(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row, int attempt) {
  return philox(spec.seed, row,
                static_cast<std::uint64_t>(attempt) << 32 | epoch << 8 |
                    static_cast<std::uint32_t>(Draw::crop));
}

/// Python's round(): halves go to the even neighbour. This is the processor's default mode.
std::size_t rounded(double value) { return static_cast<std::size_t>(std::nearbyint(value)); }

std::size_t any_of(std::size_t count, std::uint32_t bits) {
  return below(bits, static_cast<std::uint32_t>(count));
}

Box largest_in_the_middle(std::size_t height, std::size_t width) {
  const double shape = static_cast<double>(width) / static_cast<double>(height);
  Box box{0, 0, height, width};
  if (shape < narrowest_crop) box.height = rounded(static_cast<double>(width) / narrowest_crop);
  if (shape > widest_crop) box.width = rounded(static_cast<double>(height) * widest_crop);
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

}  // namespace

Box random_resized_box(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row,
                       std::size_t height, std::size_t width) {
  const auto area = static_cast<double>(height * width);
  for (int attempt = 0; attempt < crop_tries; ++attempt) {
    const Philox bits = words_of(spec, epoch, row, attempt);
    const double wanted = area * between(static_cast<double>(spec.min_area), 1, bits.word[0]);
    const double shape =
        std::exp(between(std::log(narrowest_crop), std::log(widest_crop), bits.word[1]));
    Box box;
    box.width = rounded(std::sqrt(wanted * shape));
    box.height = rounded(std::sqrt(wanted / shape));
    if (box.width == 0 || box.width > width || box.height == 0 || box.height > height) continue;
    box.top = any_of(height - box.height + 1, bits.word[2]);
    box.left = any_of(width - box.width + 1, bits.word[3]);
    return box;
  }
  return largest_in_the_middle(height, width);
}

Geometry geometry(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row, std::size_t height,
                  std::size_t width) {
  Geometry how;
  how.flip = spec.flip && (draw(spec.seed, epoch, row, Draw::flip) & 1) != 0;
  if (spec.crop == Crop::random_resized) {
    const Box box = random_resized_box(spec, epoch, row, height, width);
    how.rows = {box.top, box.height, spec.height, 0, spec.height};
    how.columns = {box.left, box.width, spec.width, 0, spec.width};
    return how;
  }
  std::size_t tall = height, wide = width;
  if (spec.short_side > 0) resized(spec.short_side, tall, wide);
  check(spec.height <= tall && spec.width <= wide, "the window lies in the image");
  AugmentSpec unpadded = spec;
  unpadded.pad = 0;
  const RowPlacement where = placement(unpadded, epoch, row, tall, wide);
  how.rows = {0, height, tall, static_cast<std::size_t>(where.dy), spec.height};
  how.columns = {0, width, wide, static_cast<std::size_t>(where.dx), spec.width};
  return how;
}

bool resamples(const AugmentSpec& spec, std::size_t height, std::size_t width) {
  if (spec.crop == Crop::random_resized) return true;
  return spec.short_side > 0 && spec.short_side != std::min(height, width);
}

}  // namespace lockstep::data
