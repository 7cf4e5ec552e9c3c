#pragma once

#include <cstddef>

#include "lockstep/model/model.hpp"

namespace lockstep::serve {

/// Lets the network also say what its last layer reads: the layer gets an output for each of its
/// inputs, which is that input times 1, plus the others times 0. So a finite feature keeps its
/// bits. The outputs follow those of the classes. Returns their number. Throws InputError where the
/// network does not end with one linear layer.
std::size_t add_features(model::Model& model);

}  // namespace lockstep::serve
