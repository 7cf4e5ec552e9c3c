#include <catch2/catch.hpp>

#include "lockstep/infer/trained_model.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

DataSetInfo stored(Encoding encoding, std::size_t side) {
  DataSetInfo info;
  info.encoding = encoding;
  info.height = info.width = encoding == Encoding::jpeg ? 0 : side;
  return info;
}

/// What a checkpoint of this configuration does to stored images, for an input of 28 x 28.
AugmentSpec evaluated(config::CropChoice crop, std::size_t size, std::size_t resize,
                      const DataSetInfo& images) {
  config::Config config;
  config.data.crop = crop;
  config.data.size = size;
  config.data.resize = resize;
  const DataSetInfo input = stored(Encoding::raw, 28);
  return model::evaluation_augment(infer::preparation(config, input), input, images);
}

/// The middle of 28 x 28, of an image whose shorter side becomes `side` (0: as it is).
bool takes_middle(const AugmentSpec& spec, std::size_t side) {
  return spec.crop == Crop::centre && spec.height == 28 && spec.width == 28 &&
         spec.short_side == side && spec.pad == 0 && !spec.flip && !spec.effects.any();
}

}  // namespace

TEST_CASE("an evaluation resizes and cuts images as the training's keys say", "[checkpoint]") {
  using enum config::CropChoice;
  const DataSetInfo jpegs = stored(Encoding::jpeg, 0), fitting = stored(Encoding::raw, 28),
                    larger = stored(Encoding::raw, 40);
  const std::size_t usual = 32;  // 256/224 of 28
  for (const auto crop : {automatic, random, random_resized}) {
    CAPTURE(static_cast<int>(crop));
    // With data.resize, every image is resized.
    for (const std::size_t size : {0, 28})
      for (const DataSetInfo* images : {&jpegs, &fitting, &larger})
        CHECK(takes_middle(evaluated(crop, size, 30, *images), 30));
    // Without it, JPEGs are resized as usual, and pixels that fit are left alone.
    for (const std::size_t size : {0, 28}) {
      CHECK(takes_middle(evaluated(crop, size, 0, jpegs), usual));
      CHECK(takes_middle(evaluated(crop, size, 0, fitting), 0));
    }
    // Other pixels are cut, after the usual resize where training stretched them.
    CHECK(takes_middle(evaluated(crop, 28, 0, larger), crop == random_resized ? usual : 0));
  }
  CHECK(takes_middle(evaluated(random_resized, 0, 0, larger), usual));
  // They do not belong to a network that was trained on images as they were.
  for (const auto crop : {automatic, random}) CHECK(evaluated(crop, 0, 0, larger).height == 0);
}
