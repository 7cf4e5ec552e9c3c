#pragma once

#include <cstddef>

#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/loading/image_preparer.hpp"
#include "lockstep/model/preparation.hpp"

namespace lockstep::serve {

/// A data set that would hold images in one form, and how its rows become what a network takes.
struct StoredForm {
  data::DataSetInfo stored;
  data::AugmentSpec augment;
};

/// For a network that takes `input`. Throws InputError where pixels of this form's size are nothing
/// for it.
StoredForm stored_as(const data::ImageForm& form, const model::Preparation& preparation,
                     const data::DataSetInfo& input, std::size_t rows);

}  // namespace lockstep::serve
