#include "serve/stored_form.hpp"

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/data/loading/row_reader.hpp"

namespace lockstep::serve {

StoredForm stored_as(const data::ImageForm& form, const model::Preparation& preparation,
                     const data::DataSetInfo& input, std::size_t rows) {
  data::DataSetInfo stored = input;
  stored.rows = rows;
  stored.encoding = form.jpeg ? data::Encoding::jpeg : data::Encoding::raw;
  if (form.jpeg) stored.height = stored.width = 0;
  if (form.height > 0) {
    stored.height = form.height;
    stored.width = form.width;
  }
  const bool fits = stored.height == input.height && stored.width == input.width;
  require(
      form.jpeg || fits || preparation.fit != model::Resized::jpegs_only,
      fmt::format("--resize makes images of {0} x {1}, but the network takes {2} x {3} (height x "
                  "width): give --resize {2}x{3}",
                  stored.height, stored.width, input.height, input.width));
  const data::AugmentSpec augment = model::evaluation_augment(preparation, input, stored);
  data::delivered(stored, augment, "a set of this form");
  return {std::move(stored), augment};
}

}  // namespace lockstep::serve
