#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::data {

/// Which part of an image becomes the row of a batch.
enum class Crop {
  random,          ///< a window at a random place of the padded image (He et al., CIFAR)
  random_resized,  ///< a box of random size, shape and place, stretched (Szegedy et al., ImageNet)
  centre,          ///< the window in the middle: evaluation
};

/// What happens to the pixels of a row once it has its place. All off unless set; torchvision's
/// ColorJitter, RandAugment and RandomErasing, on rows of 1 or 3 channels.
struct Effects {
  float brightness = 0, contrast = 0, saturation = 0;  ///< ratio from 1 - x (at least 0) to 1 + x
  float hue = 0;                                       ///< turned by -x to x of the circle; <= 1/2
  std::size_t operations = 0;                          ///< RandAugment's, for each row; 0: none
  std::size_t magnitude = 9;                           ///< of them, 0 to 30
  float erase = 0;                                     ///< probability that a rectangle is erased
  bool jitters() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
  bool any() const { return jitters() || operations > 0 || erase > 0; }
};

/// Geometry done on the host, once, on uint8 rows. Normalisation belongs to the backend.
struct AugmentSpec {
  /// Zero border before a random crop of the original size (He et al.: 4); 0 = no crop.
  std::size_t pad = 0;
  bool flip = false;  ///< horizontally, with probability 1/2
  /// Side of a square at a random place (DeVries and Taylor 2017); 0 = none.
  std::size_t cutout = 0;
  std::uint64_t seed = 1;
  Crop crop = Crop::random;
  std::size_t height = 0, width = 0;  ///< of the result; 0: as the rows are
  std::size_t short_side = 0;  ///< random, centre: an image is first resized, its shorter side to
                               ///< this; 0: not
  float min_area = 0.08f;      ///< random_resized: the smallest share of an image's area
  Effects effects{};
};

/// What happens to one row in one epoch: a pure function of (seed, epoch, row).
struct Placement {
  int dy = 0, dx = 0;  ///< offset of the window in the padded image, 0 .. its sides - the window's
  bool flip = false;
  int cut_y = 0, cut_x = 0;  ///< centre of the cutout square, in the result
};

/// `height` and `width` are the image's, before it is padded. The window fits into it.
Placement placement(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row,
                    std::size_t height, std::size_t width);

/// Writes the augmented image to `to`; `from` is [height, width, channels], `to` is as large as
/// `spec` says; they must not overlap. The border of the padded image is black (0, as torchvision's
/// RandomCrop has it); the cutout takes `fill` per channel: the mean of the data set, so that it is
/// 0 after normalisation.
void augment(const AugmentSpec& spec, const Placement& where, std::size_t height, std::size_t width,
             std::size_t channels, std::span<const std::uint8_t> fill, const std::uint8_t* from,
             std::uint8_t* to);

/// The last part of augment() alone, on an image of [height, width, channels].
void cut_out(const AugmentSpec& spec, const Placement& where, std::size_t height, std::size_t width,
             std::size_t channels, std::span<const std::uint8_t> fill, std::uint8_t* image);

}  // namespace lockstep::data
