// The format of torch.save(), a zip of
//   NAME/data.pkl    a pickle: a dictionary of tensors; each names a storage, by a number
//   NAME/data/0 ...  the storages, as they are
//   NAME/byteorder   "little" (absent in older files), NAME/version

#include "model/formats/readers.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/wire.hpp"
#include "model/formats/zip.hpp"

namespace lockstep::model {
namespace {

constexpr std::string_view pickle_member = "/data.pkl";

/// The member of the pickle; null: it is no zip of torch.save()'s.
const ZipMember* find_pickle(const ZipReader& zip) {
  for (const ZipMember& member : zip.members())
    if (member.name.ends_with(pickle_member)) return &member;
  return nullptr;
}

/// Writes a pickle of protocol 2.
class PickleWriter {
 public:
  PickleWriter() { text_ = "\x80\x02"; }
  PickleWriter& code(std::string_view codes) {
    text_ += codes;
    return *this;
  }
  PickleWriter& name(std::string_view module, std::string_view name) {
    text_ += fmt::format("c{}\n{}\n", module, name);
    return *this;
  }
  PickleWriter& text(std::string_view text) {
    text_ += 'X';
    put_little_endian(text_, text.size(), sizeof(std::uint32_t));
    text_ += text;
    return *this;
  }
  PickleWriter& number(std::size_t number) {
    check(number <= std::numeric_limits<std::int32_t>::max(), "a number of 32 bits");
    text_ += 'J';
    put_little_endian(text_, number, sizeof(std::int32_t));
    return *this;
  }
  PickleWriter& tuple(const std::vector<std::size_t>& numbers) {
    code("(");
    for (const std::size_t one : numbers) number(one);
    return code("t");
  }
  std::string finish() && { return std::move(text_ += '.'); }

 private:
  std::string text_;
};

std::string pickle_of(const std::vector<Entry>& entries) {
  PickleWriter pickle;
  pickle.name("collections", "OrderedDict").code(")R(");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    pickle.text(entry.name).name("torch._utils", "_rebuild_tensor_v2").code("((").text("storage");
    pickle.name("torch", entry.type->storage).text(std::to_string(i)).text("cpu");
    pickle.number(entry.bytes.size() / entry.type->bytes).code("tQ").number(0);
    pickle.tuple(entry.shape).tuple(row_major(entry.shape)).code("\x89");  // without gradients
    pickle.name("collections", "OrderedDict").code(")RtR");
  }
  return std::move(pickle.code("u")).finish();
}

}  // namespace

std::string pth_bytes(const Model& model) {
  const std::vector<Entry> entries = entries_of(model);
  ZipWriter zip;
  zip.add("archive/data.pkl", pickle_of(entries));
  zip.add("archive/byteorder", "little");
  for (std::size_t i = 0; i < entries.size(); ++i)
    zip.add(fmt::format("archive/data/{}", i), entries[i].bytes);
  zip.add("archive/version", "3\n");
  return std::move(zip).finish(notes_as_comment(notes_of(model)));
}

bool is_pth(const ZipReader& zip) { return find_pickle(zip) != nullptr; }

TensorFile read_pth(std::shared_ptr<const ZipReader> zip) {
  const ZipMember& member = *find_pickle(*zip);
  const std::string folder = member.name.substr(0, member.name.size() - pickle_member.size());
  std::string order_buffer, buffer;
  if (const ZipMember* order = zip->find(folder + "/byteorder"))
    require(zip->read(*order, order_buffer) == "little", "its numbers are big-endian");
  const Pickle pickle(zip->read(member, buffer), torch_names());
  const FindStorage find = [&](const TorchStorage& storage) {
    const ZipMember* data = zip->find(folder + "/data/" + storage.key);
    require(data != nullptr, fmt::format("has no storage '{}'", printable(storage.key)));
    require(data->bytes % storage.type->bytes == 0 &&
                data->bytes / storage.type->bytes == storage.count,
            fmt::format("has a storage of {} numbers in {} bytes", storage.count, data->bytes));
    return [zip, data](std::string& into) { return zip->read(*data, into); };
  };
  return {.format = "PyTorch",
          .tensors = tensors_in(pickle, find),
          .notes = notes_in_comment(zip->comment()),
          .content = nullptr};
}

namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;

constexpr std::string_view torch_prefix = "torch.", rebuild = "torch._utils._rebuild_tensor_v2",
                           rebuild_parameter = "torch._utils._rebuild_parameter",
                           size_class = "torch.Size";
constexpr std::array<std::string_view, 14> allowed_names = {
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

std::span<const std::string_view> torch_names() { return allowed_names; }

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

// What torch.save() wrote before PyTorch 1.6, and what torchvision's own files are:
//   pickles  a magic number; the number 1001; facts about the machine; the dictionary of tensors;
//            the keys of the storages
//   storages in the order of these keys: 8 bytes, the count of numbers, and the numbers

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
