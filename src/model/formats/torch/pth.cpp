// The format of torch.save(), a zip of
//   NAME/data.pkl    a pickle: a dictionary of tensors; each names a storage, by a number
//   NAME/data/0 ...  the storages, as they are
//   NAME/byteorder   "little" (absent in older files), NAME/version
#include "model/formats/torch/pth.hpp"

#include <limits>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/wire.hpp"
#include "model/formats/npz.hpp"
#include "model/formats/torch/pth_tensors.hpp"
#include "model/formats/zip/zip_writer.hpp"

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

}  // namespace lockstep::model
