#pragma once

#include <memory>
#include <string>

#include "model/formats/stored_tensor.hpp"

namespace lockstep::model {

std::string safetensors_bytes(const Model& model);

/// Reads the whole header and checks that the tensors fill the rest, without gaps. Throws
/// InputError saying what is wrong with it.
TensorFile read_safetensors(std::shared_ptr<const std::string> content);

}  // namespace lockstep::model
