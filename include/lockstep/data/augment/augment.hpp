#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// (value / 255 - mean) / deviation of whole pixels of uint8, as floats. Training does this on the
/// device (backend/arithmetic.hpp). This version lets the input pipeline be measured with all that
/// other pipelines do. REQUIRES: 1 to 4 channels.
void normalise(const DataSetInfo& info, std::span<const std::uint8_t> pixels, float* to);

/// Which part of an image becomes the row of a batch.
enum class Crop {
  random,          ///< a window at a random place of the padded image (He et al., CIFAR)
  random_resized,  ///< a box of random size, shape and place, stretched (Szegedy et al., ImageNet)
  centre,          ///< the window in the middle: evaluation
};

/// Changes to a row's pixels, made after it is cropped and resized. All are off unless set. They
/// follow torchvision's ColorJitter, RandAugment and RandomErasing, on rows of 1 or 3 channels.
struct Effects {
  float brightness = 0, contrast = 0, saturation = 0;  ///< ratio from 1 - x (at least 0) to 1 + x
  float hue = 0;                                       ///< rotated by -x to x of the circle; <= 1/2
  std::size_t operations = 0;                          ///< RandAugment operations for each row
  std::size_t magnitude = 9;                           ///< of these operations, 0 to 30
  float erase = 0;                                     ///< probability that a rectangle is erased
  bool jitters() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
  bool any() const { return jitters() || operations > 0 || erase > 0; }
};

/// How a row is cropped, flipped and cut out on the host, once, as it is stored. The backend
/// normalises.
struct AugmentSpec {
  /// Zero border before a random crop of the original size (He et al.: 4); 0 = no crop.
  std::size_t pad = 0;
  bool flip = false;  ///< horizontally, with probability 1/2
  /// One of the eight symmetries of a square, each as often: for what has no up and down.
  bool dihedral = false;
  float channel_dropout = 0;  ///< probability that a channel becomes its mean; one of them stays
  /// Side of a square at a random place (DeVries and Taylor 2017); 0 = none.
  std::size_t cutout = 0;
  std::uint64_t seed = 1;
  Crop crop = Crop::random;
  std::size_t height = 0, width = 0;  ///< of the result; 0: as the rows are
  std::size_t short_side = 0;  ///< random, centre: resize the image first, its shorter side to
                               ///< this; 0: do not
  float min_area = 0.08f;      ///< random_resized: the smallest share of an image's area
  Effects effects{};
};

/// What happens to one row in one epoch: a pure function of (seed, epoch, row).
struct RowPlacement {
  int dy = 0, dx = 0;  ///< offset of the window in the padded image, 0 .. its sides - the window's
  bool flip = false;
  int cut_y = 0, cut_x = 0;  ///< centre of the cutout square, in the result
};

/// `height` and `width` are the image's before padding. The window must fit into the padded image.
RowPlacement placement(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row,
                       std::size_t height, std::size_t width);

/// The bytes of the data set's mean pixel, which becomes 0 after normalisation.
std::vector<std::uint8_t> mean_pixel(const DataSetInfo& info);

/// Writes the augmented image to `to`. `from` is [height, width] pixels of `pixel_bytes` each; `to`
/// has the size that `spec` gives; they must not overlap. The cutout takes the pixel `fill` (see
/// mean_pixel()), the padding `border`; where that is empty it is black (0), as in torchvision's
/// RandomCrop.
void augment(const AugmentSpec& spec, const RowPlacement& where, std::size_t height,
             std::size_t width, std::size_t pixel_bytes, std::span<const std::uint8_t> fill,
             const std::uint8_t* from, std::uint8_t* to, std::span<const std::uint8_t> border = {});

/// Only the last step of augment(), on an image of [height, width] pixels.
void cut_out(const AugmentSpec& spec, const RowPlacement& where, std::size_t height,
             std::size_t width, std::size_t pixel_bytes, std::span<const std::uint8_t> fill,
             std::uint8_t* image);

}  // namespace lockstep::data
