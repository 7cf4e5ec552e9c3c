#include "lockstep/model/preparation.hpp"

namespace lockstep::model {

data::AugmentSpec evaluation_augment(const Preparation& preparation, const data::DataSetInfo& input,
                                     const data::DataSetInfo& stored) {
  const bool jpeg = stored.encoding == data::Encoding::jpeg;
  const bool fits = !jpeg && stored.height == input.height && stored.width == input.width;
  const Resized fit = preparation.fit;
  if (!jpeg && !fits && fit == Resized::jpegs_only)
    return {};  // as stored: a later check says that it does not belong there
  const bool resized = fit == Resized::all || (!fits && (jpeg || fit == Resized::others));
  return {.crop = data::Crop::centre,
          .height = input.height,
          .width = input.width,
          .short_side = resized ? preparation.short_side : 0};
}

}  // namespace lockstep::model
