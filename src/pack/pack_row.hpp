#pragma once

#include <cstddef>
#include <string>

#include "lockstep/data/image/image.hpp"
#include "lockstep/pack/pack_plan.hpp"

namespace lockstep::pack {

/// The image as it is packed, before its channels and size are changed.
data::Image read_image(const Source& source, const PackSpec& spec, std::size_t row);

/// Bytes of a row, for plan_shards(). For JPEGs it is the mean of some rows spread over the source.
std::size_t packed_row_bytes(const Source& source, const PackSpec& spec,
                             const data::DataSetInfo& info);

/// Reads a row of the source and converts it to the form that `spec` and `info` give. Throws
/// InputError naming an image that is unreadable.
data::FormedImage prepare_row(const Source& source, const PackSpec& spec,
                              const data::DataSetInfo& info, std::size_t row);

}  // namespace lockstep::pack
