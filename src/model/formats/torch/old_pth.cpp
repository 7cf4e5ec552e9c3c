// What torch.save() wrote before PyTorch 1.6, and what torchvision's own files are:
//   pickles  a magic number; the number 1001; facts about the machine; the dictionary of tensors;
//            the keys of the storages
//   storages in the order of these keys: 8 bytes, the count of numbers, and the numbers
#include <cstring>
#include <map>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "model/formats/torch/pth.hpp"
#include "model/formats/torch/pth_tensors.hpp"

namespace lockstep::model {
namespace {

using Kind = Pickle::Kind;
using namespace std::string_view_literals;

// Protocol 2, and a whole number of ten bytes.
constexpr std::string_view old_magic =
    "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02"sv;
constexpr std::int64_t old_protocol = 1001;

/// Reads the pickle at `at`, and moves `at` after it.
Pickle take_pickle(std::string_view all, std::size_t& at) {
  Pickle pickle(all.substr(at), torch_names());
  at += pickle.bytes();
  return pickle;
}

/// The bytes of each storage.
std::map<std::string, std::string_view> lay_out(std::string_view all, std::size_t at,
                                                const Pickle& keys,
                                                const std::vector<TorchStorage>& storages) {
  std::map<std::string, const TorchStorage*> known;
  for (const TorchStorage& storage : storages) known[storage.key] = &storage;
  std::map<std::string, std::string_view> bytes;
  for (const std::uint32_t index : keys.root().items) {
    const std::string& key = keys.at(index).text;
    const auto found = known.find(key);
    require(found != known.end() && !bytes.contains(key),
            fmt::format("storage '{}' belongs to no tensor", printable(key)));
    const TorchStorage& storage = *found->second;
    std::uint64_t count = 0;
    require(all.size() - at >= sizeof count, "it is cut off before its numbers");
    std::memcpy(&count, all.data() + at, sizeof count);
    at += sizeof count;
    require(count == storage.count, fmt::format("storage '{}' has {} numbers, not {}",
                                                printable(key), count, storage.count));
    require(count <= (all.size() - at) / storage.type->bytes,
            fmt::format("it is cut off in storage '{}'", printable(key)));
    bytes[key] = all.substr(at, count * storage.type->bytes);
    at += bytes[key].size();
  }
  require(at == all.size(), fmt::format("{} bytes after its last storage", all.size() - at));
  return bytes;
}

}  // namespace

bool looks_like_old_pth(std::string_view begin) { return begin.starts_with(old_magic); }

TensorFile read_old_pth(std::shared_ptr<const std::string> content) {
  const std::string_view all = *content;
  std::size_t at = 0;
  take_pickle(all, at);
  const Pickle protocol = take_pickle(all, at), machine = take_pickle(all, at);
  require(protocol.root().kind == Kind::number && protocol.root().number == old_protocol,
          "its protocol is not 1001");
  const Pickle::Value* little = machine.find(machine.root(), "little_endian");
  require(little != nullptr && little->number == 1, "its numbers are big-endian");
  const Pickle pickle = take_pickle(all, at), keys = take_pickle(all, at);
  require(keys.root().kind == Kind::list, "its list of storages is missing");
  const auto bytes = lay_out(all, at, keys, storages_in(pickle));
  const FindStorage find = [&](const TorchStorage& storage) {
    const auto found = bytes.find(storage.key);
    require(found != bytes.end(), fmt::format("has no storage '{}'", printable(storage.key)));
    require(found->second.size() / storage.type->bytes == storage.count,
            "shares a storage of another type");
    return [view = found->second](std::string&) { return view; };
  };
  return {
      .format = "PyTorch", .tensors = tensors_in(pickle, find), .notes = {}, .content = content};
}

}  // namespace lockstep::model
