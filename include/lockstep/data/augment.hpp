#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::data {

/// Geometry done on the host, once, on uint8 rows. Normalisation belongs to the backend.
struct AugmentSpec {
  std::size_t pad =
      0;  ///< zero border before a random crop of the original size (He et al.: 4); 0 = no crop
  bool flip = false;  ///< horizontally, with probability 1/2
  std::size_t cutout =
      0;  ///< side of a square at a random place (DeVries and Taylor 2017); 0 = none
  std::uint64_t seed = 1;
};

/// What happens to one row in one epoch: a pure function of (seed, epoch, row).
struct Placement {
  int dy = 0, dx = 0;  ///< offset of the crop in the padded image, 0 .. 2 * pad
  bool flip = false;
  int cut_y = 0, cut_x = 0;  ///< centre of the cutout square
};

Placement placement(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row,
                    std::size_t height, std::size_t width);

/// Writes the augmented image to `to`; both [height, width, channels]; they must not overlap. The
/// border of the padded image is black (0, as torchvision's RandomCrop has it); the cutout takes
/// `fill` per channel: the mean of the data set, so that it is 0 after normalisation.
void augment(const AugmentSpec& spec, const Placement& where, std::size_t height, std::size_t width,
             std::size_t channels, std::span<const std::uint8_t> fill, const std::uint8_t* from,
             std::uint8_t* to);

}  // namespace lockstep::data
