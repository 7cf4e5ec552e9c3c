#pragma once

#include <cstddef>

#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/loading/image_preparer.hpp"

namespace lockstep::serve {

/// The data set that would hold images in this form, for a network that takes `input`.
data::DataSetInfo stored_as(const data::ImageForm& form, const data::DataSetInfo& input,
                            std::size_t rows);

}  // namespace lockstep::serve
