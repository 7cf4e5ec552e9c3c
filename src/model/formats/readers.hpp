#pragma once

#include <map>
#include <memory>
#include <string>

#include "lockstep/nn/resnet.hpp"
#include "model/formats/stored_tensor.hpp"
#include "model/formats/zip.hpp"

namespace lockstep::model {

std::string safetensors_bytes(const Model& model);

/// Reads the whole header and checks that the tensors fill the rest, without gaps. Throws
/// InputError saying what is wrong with it.
TensorFile read_safetensors(std::shared_ptr<const std::string> content);

std::string npz_bytes(const Model& model);

/// True when the zip has an array of numpy's.
bool is_npz(const ZipReader& zip);

/// Reads the arrays' headers. Throws InputError saying what is wrong with one.
TensorFile read_npz(std::shared_ptr<const ZipReader> zip);

/// The notes as a zip's comment, without names of classes that do not fit; and back. A comment of
/// another form has no notes.
std::string notes_as_comment(std::map<std::string, std::string> notes);
std::map<std::string, std::string> notes_in_comment(std::string_view comment);

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
