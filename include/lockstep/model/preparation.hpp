#pragma once

#include <cstddef>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/data_set_info.hpp"

namespace lockstep::model {

/// Which images are resized before an evaluation cuts out their middle. Pixels that already have
/// the input's size are taken as they are, except with `all`.
enum class Resized {
  all,         ///< all images
  others,      ///< JPEGs, and pixels of another size
  jpegs,       ///< JPEGs; of pixels of another size only the middle is cut out
  jpegs_only,  ///< JPEGs; pixels of another size do not belong to this network
};

/// How an image becomes the network's input when nothing is random.
struct Preparation {
  Resized fit = Resized::jpegs_only;
  std::size_t short_side = 0;  ///< pixels that a resized image's shorter side gets
  bool operator==(const Preparation&) const = default;
};

/// The shorter side that images usually get before a window of this side is cut out of them.
constexpr std::size_t usual_short_side(std::size_t side) { return (side * 256 + 112) / 224; }

/// What that means for the rows of a data set, for a network with this `input`.
data::AugmentSpec evaluation_augment(const Preparation& preparation, const data::DataSetInfo& input,
                                     const data::DataSetInfo& stored);

}  // namespace lockstep::model

template <>
struct lockstep::Choices<lockstep::model::Resized> {
  static constexpr Choice<model::Resized> all[] = {{model::Resized::all, "all"},
                                                   {model::Resized::others, "others"},
                                                   {model::Resized::jpegs, "jpegs"},
                                                   {model::Resized::jpegs_only, "jpegs-only"}};
};
