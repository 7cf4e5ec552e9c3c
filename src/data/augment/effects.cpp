#include "data/augment/effects.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/rng.hpp"

namespace lockstep::data {
namespace {

/// The range of a ColorJitter ratio: from 1 - range, at least 0, to 1 + range, uniform.
double ratio(float range, std::uint32_t bits) {
  const double r = static_cast<double>(range);
  return between(std::max(0.0, 1 - r), 1 + r, bits);
}

void erase(const Box& box, const Canvas& image, std::span<const std::uint8_t> fill) {
  for (std::size_t y = box.top; y < box.top + box.height; ++y)
    for (std::size_t x = box.left; x < box.left + box.width; ++x)
      std::memcpy(image.pixels + (y * image.width + x) * image.channels, fill.data(),
                  image.channels);
}

void adjust(Jitter::Kind kind, double amount, const Canvas& image) {
  switch (kind) {
    case Jitter::brightness:
      return adjust_brightness(image, amount);
    case Jitter::contrast:
      return adjust_contrast(image, amount);
    case Jitter::saturation:
      return adjust_saturation(image, amount);
    case Jitter::hue:
      return adjust_hue(image, amount);
  }
}

}  // namespace

Jitter jitter(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row) {
  const Philox amounts = draw4(spec.seed, epoch, row, Draw::colour);
  const Philox places = draw4(spec.seed, epoch, row, Draw::colour, 1);
  Jitter drawn;
  for (std::uint32_t left = 4; left > 1; --left)
    std::swap(drawn.order[left - 1], drawn.order[below(places.word[left - 1], left)]);
  const Effects& by = spec.effects;
  const double turn = static_cast<double>(by.hue);
  drawn.amount = {ratio(by.brightness, amounts.word[0]), ratio(by.contrast, amounts.word[1]),
                  ratio(by.saturation, amounts.word[2]), between(-turn, turn, amounts.word[3])};
  return drawn;
}

ImageChange operation(ImageChange::Kind kind, std::size_t magnitude, bool negative,
                      std::size_t height, std::size_t width) {
  constexpr double strongest = 30;
  const double share = static_cast<double>(magnitude) / strongest, sign = negative ? -1 : 1;
  const auto pixels = [&](std::size_t side) {  // whole pixels
    return sign * std::trunc(share * 150 / 331 * static_cast<double>(side));
  };
  switch (kind) {
    case ImageChange::Kind::shear_x:
    case ImageChange::Kind::shear_y:
      return {kind, sign * 0.3 * share};
    case ImageChange::Kind::translate_x:
      return {kind, pixels(width)};
    case ImageChange::Kind::translate_y:
      return {kind, pixels(height)};
    case ImageChange::Kind::rotate:
      return {kind, sign * 30 * share};
    case ImageChange::Kind::brightness:
    case ImageChange::Kind::colour:
    case ImageChange::Kind::contrast:
    case ImageChange::Kind::sharpness:
      return {kind, sign * 0.9 * share};
    case ImageChange::Kind::posterise:
      return {kind, 8 - std::nearbyint(share * 4)};
    case ImageChange::Kind::solarise:
      return {kind, 255 * (1 - share)};
    case ImageChange::Kind::identity:
    case ImageChange::Kind::autocontrast:
    case ImageChange::Kind::equalise:
      break;
  }
  return {kind, 0};
}

ImageChange rand_augment(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row,
                         std::size_t index, std::size_t height, std::size_t width) {
  const Philox bits =
      draw4(spec.seed, epoch, row, Draw::randaugment, static_cast<std::uint32_t>(index));
  const auto kind = static_cast<ImageChange::Kind>(below(bits.word[0], ImageChange::kinds));
  return operation(kind, spec.effects.magnitude, (bits.word[1] >> 31) != 0, height, width);
}

Box erased_box(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row, std::size_t height,
               std::size_t width) {
  constexpr std::uint32_t tries = 10;
  const double least_shape = std::log(0.3), most_shape = std::log(3.3);
  if (unit(draw4(spec.seed, epoch, row, Draw::erase).word[0]) >= spec.effects.erase) return {};
  const auto area = static_cast<double>(height * width);
  for (std::uint32_t attempt = 1; attempt <= tries; ++attempt) {
    const Philox bits = draw4(spec.seed, epoch, row, Draw::erase, attempt);
    const double wanted = area * between(0.02, 0.33, bits.word[0]);
    const double shape = std::exp(between(least_shape, most_shape, bits.word[1]));
    Box box;
    box.height = static_cast<std::size_t>(std::nearbyint(std::sqrt(wanted * shape)));
    box.width = static_cast<std::size_t>(std::nearbyint(std::sqrt(wanted / shape)));
    if (box.height >= height || box.width >= width) continue;
    box.top = below(bits.word[2], static_cast<std::uint32_t>(height - box.height + 1));
    box.left = below(bits.word[3], static_cast<std::uint32_t>(width - box.width + 1));
    return box;
  }
  return {};
}

void Painter::carry_out(const ImageChange& operation, const Canvas& image) {
  const double magnitude = operation.magnitude;
  const int whole = static_cast<int>(magnitude);
  switch (operation.kind) {
    case ImageChange::Kind::identity:
      return;
    case ImageChange::Kind::shear_x:
      return warp(image, shear_x(magnitude), scratch_);
    case ImageChange::Kind::shear_y:
      return warp(image, shear_y(magnitude), scratch_);
    case ImageChange::Kind::translate_x:
      return warp(image, translation(whole, 0), scratch_);
    case ImageChange::Kind::translate_y:
      return warp(image, translation(0, whole), scratch_);
    case ImageChange::Kind::rotate:
      return warp(image, rotation(magnitude, image.height, image.width), scratch_);
    case ImageChange::Kind::brightness:
      return adjust_brightness(image, 1 + magnitude);
    case ImageChange::Kind::colour:
      return adjust_saturation(image, 1 + magnitude);
    case ImageChange::Kind::contrast:
      return adjust_contrast(image, 1 + magnitude);
    case ImageChange::Kind::sharpness:
      return adjust_sharpness(image, 1 + magnitude, scratch_);
    case ImageChange::Kind::posterise:
      return posterise(image, whole);
    case ImageChange::Kind::solarise:
      return solarise(image, magnitude);
    case ImageChange::Kind::autocontrast:
      return stretch_contrast(image);
    case ImageChange::Kind::equalise:
      return equalise(image);
  }
}

void Painter::paint(std::uint64_t epoch, std::size_t row, const Canvas& image,
                    std::span<const std::uint8_t> fill) {
  const Effects& effects = spec_.effects;
  if (effects.jitters()) {
    const Jitter drawn = jitter(spec_, epoch, row);
    const std::array<float, 4> range = {effects.brightness, effects.contrast, effects.saturation,
                                        effects.hue};
    for (const Jitter::Kind kind : drawn.order)
      if (range[kind] > 0) adjust(kind, drawn.amount[kind], image);
  }
  for (std::size_t i = 0; i < effects.operations; ++i)
    carry_out(rand_augment(spec_, epoch, row, i, image.height, image.width), image);
  if (effects.erase > 0)
    erase(erased_box(spec_, epoch, row, image.height, image.width), image, fill);
}

}  // namespace lockstep::data
