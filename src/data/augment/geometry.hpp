#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/box.hpp"

namespace lockstep::data {

/// How one image becomes a row of a batch.
struct Geometry {
  Axis rows, columns;
  bool flip = false;
};

/// torchvision's RandomResizedCrop (shapes from 3:4 to 4:3). It tries ten times a share of the area
/// (uniform from spec.min_area to 1) and a shape (its logarithm uniform), then takes the largest
/// box of an allowed shape in the middle. A pure function of (spec.seed, epoch, row).
Box random_resized_box(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row,
                       std::size_t height, std::size_t width);

/// The geometry of a row for any image of height x width: a pure function of (spec.seed, epoch,
/// row). spec.pad is not part of it: only rows of one size are padded. The result is spec.height x
/// spec.width, which must fit into the (resized) image, except with random_resized.
Geometry geometry(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row, std::size_t height,
                  std::size_t width);

/// True when rows of this size are not just copied: then geometry() gives the resampling.
bool resamples(const AugmentSpec& spec, std::size_t height, std::size_t width);

}  // namespace lockstep::data
