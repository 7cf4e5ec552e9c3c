#pragma once

#include <map>
#include <string>

#include "lockstep/nn/resnet.hpp"
#include "model/formats/stored_tensor.hpp"

namespace lockstep::model {

/// The tensors of a network, by torchvision's names.
using ByName = std::map<std::string, const StoredTensor*>;

/// True for num_batches_tracked, which no network needs.
bool counts_batches(const std::string& name);

/// Takes off what people's programs put before all names ("module.", "model.", "_orig_mod."), and
/// leaves out what counts batches. Throws InputError when there are no others, or a name comes
/// twice.
ByName by_name(const TensorFile& file);

/// The ResNet that has exactly these tensors, with the usual input. Throws InputError naming the
/// one that is most alike, and the first tensor that differs.
nn::ResNetSpec deduce(const ByName& tensors);

}  // namespace lockstep::model
