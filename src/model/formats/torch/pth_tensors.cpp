#include "model/formats/torch/pth_tensors.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::model {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;

constexpr std::string_view torch_prefix = "torch.", rebuild = "torch._utils._rebuild_tensor_v2",
                           rebuild_parameter = "torch._utils._rebuild_parameter",
                           size_class = "torch.Size";
constexpr std::array<std::string_view, 14> names = {
    "collections.OrderedDict", rebuild,
    rebuild_parameter,         size_class,
    "torch.FloatStorage",      "torch.HalfStorage",
    "torch.BFloat16Storage",   "torch.DoubleStorage",
    "torch.LongStorage",       "torch.IntStorage",
    "torch.ShortStorage",      "torch.CharStorage",
    "torch.ByteStorage",       "torch.BoolStorage"};

/// Keys of dictionaries that people save around a state dict, in the order in which they are
/// tried.
constexpr std::array<std::string_view, 5> wrappers = {"state_dict", "model", "model_state_dict",
                                                      "net", "model_ema"};
constexpr int deepest = 3;

/// ('storage', torch.FloatStorage, '0', 'cpu', 1728), and in the old form None
TorchStorage storage_of(const Pickle& pickle, const Value& value) {
  require(value.kind == Kind::persistent, "has no storage");
  const std::vector<std::uint32_t>& items = pickle.at(value.items[0]).items;
  const auto is = [&](std::size_t i, Kind kind) { return pickle.at(items[i]).kind == kind; };
  require(items.size() >= 5 && items.size() <= 6 && is(0, Kind::text) &&
              pickle.at(items[0]).text == "storage" && is(1, Kind::name) && is(2, Kind::text) &&
              is(4, Kind::number) && pickle.at(items[4]).number >= 0 &&
              (items.size() == 5 || is(5, Kind::none)),
          "has a storage that cannot be read");
  const std::string_view type = pickle.at(items[1]).text;
  TorchStorage storage{
      .key = pickle.at(items[2]).text,
      .type = type.starts_with(torch_prefix)
                  ? find_type(&NumberForm::storage, type.substr(torch_prefix.size()))
                  : nullptr,
      .count = static_cast<std::size_t>(pickle.at(items[4]).number)};
  require(storage.type != nullptr,
          fmt::format("has a storage of the unknown type '{}'", printable(type)));
  return storage;
}

class Finder {
 public:
  Finder(const Pickle& pickle, const FindStorage& find) : pickle_(pickle), find_(find) {}

  std::vector<StoredTensor> tensors() const {
    const Value* dictionary = find_state_dict(pickle_.root());
    require(dictionary != nullptr,
            "it has no state dict: no tensors by name, neither on its own nor under 'state_dict' "
            "or 'model'");
    std::vector<StoredTensor> tensors;
    for (std::size_t i = 0; i + 1 < dictionary->items.size(); i += 2) {
      const Value& key = pickle_.at(dictionary->items[i]);
      const Value* call = tensor_call(pickle_.at(dictionary->items[i + 1]));
      if (key.kind != Kind::text || call == nullptr) continue;
      try {
        tensors.push_back(tensor(*call));
      } catch (const InputError& error) {
        throw InputError(fmt::format("tensor '{}' {}", printable(key.text), error.what()));
      }
      tensors.back().name = key.text;
    }
    return tensors;
  }

 private:
  const std::vector<std::uint32_t>& arguments(const Value& call) const {
    return pickle_.at(call.items[0]).items;
  }

  /// The call that makes a tensor or a parameter's tensor; null: it is neither.
  const Value* tensor_call(const Value& value) const {
    const Value* call = &value;
    for (int depth = 0; depth < deepest && call->kind == Kind::call; ++depth) {
      if (call->text == rebuild) return call;
      if (call->text != rebuild_parameter || arguments(*call).empty()) return nullptr;
      call = &pickle_.at(arguments(*call)[0]);
    }
    return nullptr;
  }

  bool is_state_dict(const Value& value) const {
    for (std::size_t i = 0; i + 1 < value.items.size(); i += 2)
      if (pickle_.at(value.items[i]).kind == Kind::text &&
          tensor_call(pickle_.at(value.items[i + 1])) != nullptr)
        return true;
    return false;
  }

  const Value* find_state_dict(const Value& value, int depth = 0) const {
    if (value.kind != Kind::dictionary || depth == deepest) return nullptr;
    // Other tensors (a loss, an accuracy) may be next to a state dict.
    for (const std::string_view key : wrappers) {
      const Value* below = pickle_.find(value, key);
      if (below == nullptr) continue;
      if (const Value* found = find_state_dict(*below, depth + 1)) return found;
    }
    return is_state_dict(value) ? &value : nullptr;
  }

  std::vector<std::size_t> counts(std::uint32_t index) const {
    const Value* value = &pickle_.at(index);
    if (value->kind == Kind::call && value->text == size_class && arguments(*value).size() == 1)
      value = &pickle_.at(arguments(*value)[0]);
    require(value->kind == Kind::tuple && value->items.size() <= most_dimensions,
            "has a shape that cannot be read");
    std::vector<std::size_t> found;
    for (const std::uint32_t item : value->items) found.push_back(count(item));
    return found;
  }
  std::size_t count(std::uint32_t index) const {
    const Value& value = pickle_.at(index);
    require(value.kind == Kind::number && value.number >= 0, "has a size that cannot be read");
    return static_cast<std::size_t>(value.number);
  }

  StoredTensor tensor(const Value& call) const {
    const std::vector<std::uint32_t>& given = arguments(call);
    require(given.size() >= 4, "lacks its shape");
    // The seventh says what torch.load() would still do to the values: negate them.
    require(given.size() < 7 || pickle_.at(given[6]).items.empty(),
            "is a view that changes its values: save its clone()");
    const TorchStorage storage = storage_of(pickle_, pickle_.at(given[0]));
    StoredTensor tensor;
    tensor.type = storage.type;
    tensor.first = count(given[1]);
    tensor.shape = counts(given[2]);
    tensor.strides = counts(given[3]);
    require(tensor.shape.size() == tensor.strides.size(), "has other strides than dimensions");
    tensor.bytes = find_(storage);
    return tensor;
  }

 private:
  const Pickle& pickle_;
  const FindStorage& find_;
};

}  // namespace

std::span<const std::string_view> torch_names() { return names; }

std::vector<StoredTensor> tensors_in(const Pickle& pickle, const FindStorage& find) {
  return Finder(pickle, find).tensors();
}

std::vector<TorchStorage> storages_in(const Pickle& pickle) {
  std::vector<TorchStorage> storages;
  std::set<std::string> keys;
  for (const Value& value : pickle.values()) {
    if (value.kind != Kind::persistent) continue;
    TorchStorage storage = storage_of(pickle, value);
    if (keys.insert(storage.key).second) storages.push_back(std::move(storage));
  }
  return storages;
}

}  // namespace lockstep::model
