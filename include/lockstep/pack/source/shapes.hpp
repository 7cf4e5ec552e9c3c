#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/image/image.hpp"
#include "lockstep/pack/source/source.hpp"

namespace lockstep::pack {

/// The default data set: 10 classes of rendered 32x32 colour images. The class follows from the
/// outline (disc, ring, triangle, ...) or from a texture on any outline (striped, chequered,
/// dotted). Place, size, rotation, colours, light, clutter and noise are random and independent of
/// the class, so that no single pixel tells it. All classes survive a horizontal flip.
struct ShapesSpec {
  std::uint64_t seed = 1;
  std::size_t training_rows = 20000, validation_rows = 4000;
};

const std::vector<std::string>& shape_classes();

/// The image of `row`, a pure function of seed, row and label. It uses no transcendental function,
/// so that the bits do not depend on the C library.
data::Image render_shape(std::uint64_t seed, std::uint64_t row, std::size_t label);

/// Row r has label r mod 10; the validation rows follow the training rows.
std::unique_ptr<Source> make_shapes(const ShapesSpec& spec);

}  // namespace lockstep::pack
