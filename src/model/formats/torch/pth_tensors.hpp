#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/formats/stored_tensor.hpp"
#include "model/formats/torch/pickle.hpp"

namespace lockstep::model {

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
