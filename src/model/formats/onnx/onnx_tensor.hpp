#pragma once

#include <string_view>

#include "model/formats/stored_tensor.hpp"

namespace lockstep::model {

/// Describes the constant that a TensorProto is, and checks that its bytes are those of its shape.
/// They stay in `message`. Throws InputError naming the tensor, also where its numbers are in
/// another file.
StoredTensor read_onnx_tensor(std::string_view name, std::string_view message);

}  // namespace lockstep::model
