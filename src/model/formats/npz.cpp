// numpy's format: a zip of arrays NAME.npy, each
//   8 bytes   "\x93NUMPY", major and minor version
//   2 or 4    bytes of the header (4 from version 2 on)
//   header    {'descr': '<f4', 'fortran_order': False, 'shape': (64, 3, 7, 7), }, then spaces
//   the rest  values
#include "model/formats/readers.hpp"

#include <cstring>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/base/wire.hpp"
#include "model/formats/zip.hpp"

namespace lockstep::model {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view magic = "\x93NUMPY", ending = ".npy";
constexpr std::size_t alignment = 64, longest_npy_header = 1 << 16;

std::string npy_header(const Entry& entry) {
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (", entry.type->numpy);
  for (const std::size_t extent : entry.shape) text += fmt::format("{}, ", extent);
  // A tuple of one number keeps its comma.
  if (entry.shape.size() > 1) text.resize(text.size() - 2);
  if (entry.shape.size() == 1) text.resize(text.size() - 1);
  text += "), }";
  const std::size_t before = magic.size() + 2 + sizeof(std::uint16_t);
  text.append((alignment - (before + text.size() + 1) % alignment) % alignment, ' ');
  text += '\n';
  std::string header(magic);
  header += "\x01\0"sv;
  put_little_endian(header, text.size(), sizeof(std::uint16_t));
  return header + text;
}

/// Reads the dictionary of a header, as numpy writes it: only texts, True, False and tuples of
/// numbers.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : left_(text) {}

  void read(StoredTensor& tensor, bool& fortran_order) {
    bool has_descr = false, has_order = false, has_shape = false;
    expect("{");
    while (!take("}")) {
      const std::string_view key = text();
      expect(":");
      if (key == "descr" && !has_descr) {
        has_descr = true;
        const std::string_view descr = text();
        tensor.type = find_type(&NumberForm::numpy, descr);
        require(tensor.type != nullptr, fmt::format("numbers of type '{}'", printable(descr)));
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        fortran_order = take("True");
        if (!fortran_order) expect("False");
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        tensor.shape = tuple();
      } else {
        throw InputError("a damaged header");
      }
      if (!take(",")) {
        expect("}");
        break;
      }
    }
    require(has_descr && has_order && has_shape, "a header without descr, fortran_order or shape");
  }

 private:
  bool take(std::string_view token) {
    left_.remove_prefix(std::min(left_.find_first_not_of(" \n"), left_.size()));
    if (!left_.starts_with(token)) return false;
    left_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) { require(take(token), "a damaged header"); }
  std::string_view text() {
    expect("'");
    const std::size_t end = left_.find('\'');
    require(end != left_.npos, "a damaged header");
    const std::string_view found = left_.substr(0, end);
    left_.remove_prefix(end + 1);
    return found;
  }
  std::vector<std::size_t> tuple() {
    std::vector<std::size_t> numbers;
    expect("(");
    while (!take(")")) {
      const std::size_t digits = std::min(left_.find_first_not_of("0123456789"), left_.size());
      const auto number = whole_number<std::size_t>(std::string(left_.substr(0, digits)));
      require(number && numbers.size() < most_dimensions, "a shape that cannot be read");
      numbers.push_back(*number);
      left_.remove_prefix(digits);
      if (!take(",")) {
        expect(")");
        break;
      }
    }
    return numbers;
  }
  std::string_view left_;
};

StoredTensor read_array(const ZipMember& member, const std::shared_ptr<const ZipReader>& zip) {
  const std::string begin = zip->begin(member, longest_npy_header);
  const std::string_view all = begin;
  require(all.starts_with(magic) && all.size() >= 12, "no array of numpy's");
  const char major = all[magic.size()];
  require(major >= 1 && major <= 3, fmt::format("version {} of the format", int{major}));
  const std::size_t width = major == 1 ? 2 : 4, before = magic.size() + 2 + width;
  std::uint32_t length = 0;
  std::memcpy(&length, all.data() + before - width, width);
  require(length <= all.size() - before, "a header that is cut off");
  const std::size_t head = before + length;
  StoredTensor tensor;
  tensor.name = member.name.substr(0, member.name.size() - ending.size());
  bool fortran_order = false;
  HeaderReader(all.substr(before, length)).read(tensor, fortran_order);
  require(count_of(tensor.shape) * tensor.type->bytes == member.bytes - head,
          fmt::format("{} bytes of values, which do not fit its shape", member.bytes - head));
  tensor.strides = row_major(tensor.shape);
  if (fortran_order) {
    const std::vector<std::size_t> turned = {tensor.shape.rbegin(), tensor.shape.rend()};
    const std::vector<std::size_t> strides = row_major(turned);
    tensor.strides = {strides.rbegin(), strides.rend()};
  }
  tensor.bytes = [zip, &member, head](std::string& buffer) {
    return zip->read(member, buffer).substr(head);
  };
  return tensor;
}

}  // namespace

std::string npz_bytes(const Model& model) {
  ZipWriter zip;
  for (const Entry& entry : entries_of(model))
    zip.add(entry.name + std::string(ending), npy_header(entry), entry.bytes);
  return std::move(zip).finish(notes_as_comment(notes_of(model)));
}

bool is_npz(const ZipReader& zip) {
  for (const ZipMember& member : zip.members())
    if (member.name.ends_with(ending)) return true;
  return false;
}

TensorFile read_npz(std::shared_ptr<const ZipReader> zip) {
  TensorFile file{.format = "numpy",
                  .tensors = {},
                  .notes = notes_in_comment(zip->comment()),
                  .content = nullptr};
  for (const ZipMember& member : zip->members()) {
    if (!member.name.ends_with(ending)) continue;
    try {
      file.tensors.push_back(read_array(member, zip));
    } catch (const InputError& error) {
      throw InputError(fmt::format("'{}' has {}", printable(member.name), error.what()));
    }
  }
  return file;
}

std::string notes_as_comment(std::map<std::string, std::string> notes) {
  std::string comment = json_text(nlohmann::json(notes));
  if (comment.size() <= longest_comment || notes.erase("classes") == 0) return comment;
  return notes_as_comment(std::move(notes));
}

std::map<std::string, std::string> notes_in_comment(std::string_view comment) {
  const nlohmann::json json = nlohmann::json::parse(comment, nullptr, false);
  std::map<std::string, std::string> notes;
  if (!json.is_object()) return notes;
  for (const auto& [name, text] : json.items())
    if (text.is_string()) notes[name] = text.get<std::string>();
  return notes;
}

}  // namespace lockstep::model
