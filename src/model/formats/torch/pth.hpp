#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/formats/stored_tensor.hpp"
#include "model/formats/torch/pickle.hpp"
#include "model/formats/zip.hpp"

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

/// The names that a pickle of tensors may have.
std::span<const std::string_view> torch_names();

/// A flat buffer that tensors lie in.
struct TorchStorage {
  std::string key;
  const NumberForm* type = nullptr;
  std::size_t count = 0;
};

/// The bytes of a storage, of exactly count * type->bytes. Throws InputError where there are none.
using FindStorage =
    std::function<std::function<std::string_view(std::string& buffer)>(const TorchStorage&)>;

/// The tensors of the state dict in a pickle: the dictionary that has some below `state_dict`,
/// `model` and the like, or else the outermost one. Throws InputError saying what is missing or
/// wrong.
std::vector<StoredTensor> tensors_in(const Pickle& pickle, const FindStorage& find);

/// The storages that the pickle refers to, each once.
std::vector<TorchStorage> storages_in(const Pickle& pickle);

}  // namespace lockstep::model
