#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "model/formats/entries.hpp"
#include "model/formats/stored_tensor.hpp"
#include "model/formats/zip/zip_reader.hpp"

namespace lockstep::model {

/// A state dict as torch.save() writes it.
std::string pth_bytes(const Model& model);

/// True when the zip is one of torch.save()'s.
bool is_pth(const ZipReader& zip);

/// Finds the state dict and its tensors, and checks that each lies in its storage. Throws
/// InputError saying what is wrong.
TensorFile read_pth(std::shared_ptr<const ZipReader> zip);

/// The same for the form before PyTorch 1.6, which is no zip.
bool looks_like_old_pth(std::string_view begin);
TensorFile read_old_pth(std::shared_ptr<const std::string> content);

}  // namespace lockstep::model
