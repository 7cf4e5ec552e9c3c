#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/image/pixels/colour.hpp"
#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/box.hpp"

namespace lockstep::data {

// The random draws for one row, as in torchvision: pure functions of (spec.seed, epoch, row).

/// ColorJitter: four adjustments in a random order. Those that are off take part in the order, too,
/// so that turning one off does not change the others' draws.
struct Jitter {
  enum Kind : std::uint8_t { brightness, contrast, saturation, hue };
  std::array<Kind, 4> order{brightness, contrast, saturation, hue};
  std::array<double, 4> amount{1, 1, 1, 0};  ///< by kind: ratios, and how far the hue turns
};
Jitter jitter(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row);

/// One of RandAugment's operations.
struct ImageChange {
  enum class Kind : std::uint8_t {
    identity,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
    rotate,
    brightness,
    colour,
    contrast,
    sharpness,
    posterise,
    solarise,
    autocontrast,
    equalise
  };
  static constexpr std::size_t kinds = 14;
  Kind kind = Kind::identity;
  double magnitude = 0;  ///< signed; degrees, pixels, bits or a threshold, by kind
};
/// The operation at magnitude 0 to 30 for an image of this size.
ImageChange operation(ImageChange::Kind kind, std::size_t magnitude, bool negative,
                      std::size_t height, std::size_t width);
/// The `index`-th operation of a row.
ImageChange rand_augment(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row,
                         std::size_t index, std::size_t height, std::size_t width);

/// RandomErasing's rectangle (shares of 0.02 to 0.33 of the area, shapes from 0.3 to 3.3). An empty
/// box: nothing is erased.
Box erased_box(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row, std::size_t height,
               std::size_t width);

/// Applies spec.effects to rows.
///
/// **Thread safety:** one object for each thread.
class Painter {
 public:
  explicit Painter(const AugmentSpec& spec) : spec_(spec) {}
  /// Colour jitter, RandAugment, then erasing with `fill` (a value for each channel).
  void paint(std::uint64_t epoch, std::size_t row, const Canvas& image,
             std::span<const std::uint8_t> fill);

 private:
  void carry_out(const ImageChange& operation, const Canvas& image);
  AugmentSpec spec_;
  std::vector<std::uint8_t> scratch_;
};

}  // namespace lockstep::data
