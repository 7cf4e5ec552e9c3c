// The format of https://github.com/huggingface/safetensors:
//   8 bytes   N, little-endian
//   N bytes   JSON: {"__metadata__": {name: text}, NAME: {"dtype", "shape", "data_offsets"}, ...}
//   the rest  values; a tensor's offsets [begin, end) count from here
#include "model/formats/readers.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/wire.hpp"
#include "model/description.hpp"

namespace lockstep::model {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* metadata = "__metadata__";
constexpr std::size_t length_bytes = 8;
constexpr std::size_t longest_header = std::size_t{1} << 20;  // the largest ResNet has 100 kB
constexpr int deepest = 3;                                    // header, tensor, shape

/// Throws InputError when an object has two fields of one name.
Json parse_header(std::string_view text) {
  std::vector<std::set<std::string>> names(deepest + 1);
  const auto judge = [&](int depth, Json::parse_event_t event, Json& value) {
    require(depth <= deepest, "its header is nested too deeply");
    if (event == Json::parse_event_t::object_start) names[static_cast<std::size_t>(depth)].clear();
    if (event == Json::parse_event_t::key) {
      const auto& name = value.get_ref<const std::string&>();
      require(names[static_cast<std::size_t>(depth - 1)].insert(name).second,
              fmt::format("its header has '{}' twice", printable(name)));
    }
    return true;
  };
  try {
    return Json::parse(text, judge);
  } catch (const Json::exception&) {
    throw InputError("its header is not JSON");
  }
}

/// A list of whole numbers from 0 on.
std::vector<std::size_t> counts(const Json& entry, const char* field, const std::string& name) {
  const auto found = entry.find(field);
  const auto is_count = [](const Json& one) { return one.is_number_unsigned(); };
  require(found != entry.end() && found->is_array() &&
              std::all_of(found->begin(), found->end(), is_count),
          fmt::format("tensor '{}' has no list of numbers '{}'", printable(name), field));
  return found->get<std::vector<std::size_t>>();
}

struct Placed {
  StoredTensor tensor;
  std::size_t begin = 0, end = 0;
};

Placed read_entry(const std::string& name, const Json& entry) {
  require(entry.is_object(), fmt::format("tensor '{}' is not an object", printable(name)));
  const auto dtype = entry.find("dtype");
  require(dtype != entry.end() && dtype->is_string(),
          fmt::format("tensor '{}' has no 'dtype'", printable(name)));
  Placed placed;
  StoredTensor& tensor = placed.tensor;
  tensor.name = name;
  const auto& type = dtype->get_ref<const std::string&>();
  tensor.type = find_type(&NumberForm::name, type);
  require(tensor.type != nullptr,
          fmt::format("tensor '{}' is of an unknown type '{}'", printable(name), printable(type)));
  tensor.shape = counts(entry, "shape", name);
  require(tensor.shape.size() <= most_dimensions,
          fmt::format("tensor '{}' has {} dimensions", printable(name), tensor.shape.size()));
  tensor.strides = row_major(tensor.shape);
  const std::vector<std::size_t> offsets = counts(entry, "data_offsets", name);
  require(offsets.size() == 2 && offsets[0] <= offsets[1],
          fmt::format("tensor '{}' has no two offsets in rising order", printable(name)));
  placed.begin = offsets[0];
  placed.end = offsets[1];
  require(count_of(tensor.shape) * tensor.type->bytes == placed.end - placed.begin,
          fmt::format("tensor '{}' of {} and shape {} does not have the {} bytes of its offsets",
                      printable(name), tensor.type->name, shape_text(tensor.shape),
                      placed.end - placed.begin));
  return placed;
}

/// Each begins where the one before it ends, and the last one ends the file.
void require_no_gaps(std::vector<Placed>& all, std::size_t bytes) {
  std::stable_sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::size_t at = 0;
  for (const Placed& one : all) {
    require(one.begin == at,
            fmt::format("tensor '{}' begins at byte {}, but the one before it ends at byte {}",
                        printable(one.tensor.name), one.begin, at));
    require(one.end <= bytes, fmt::format("it is cut off: tensor '{}' ends at byte {} of {}",
                                          printable(one.tensor.name), one.end, bytes));
    at = one.end;
  }
  require(at == bytes, fmt::format("{} bytes after the last tensor belong to none", bytes - at));
}

}  // namespace

std::string safetensors_bytes(const Model& model) {
  std::vector<Entry> entries = entries_of(model);
  // As the format's own library writes them: large numbers first, then by name.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.type->bytes != b.type->bytes ? a.type->bytes > b.type->bytes : a.name < b.name;
  });
  OrderedJson header{{metadata, notes_of(model)}};
  std::size_t at = 0;
  for (const Entry& entry : entries) {
    header[entry.name] = {{"dtype", entry.type->name},
                          {"shape", entry.shape},
                          {"data_offsets", {at, at + entry.bytes.size()}}};
    at += entry.bytes.size();
  }
  std::string text = json_text(header);
  text.resize((text.size() + length_bytes - 1) / length_bytes * length_bytes, ' ');
  std::string all;
  all.reserve(length_bytes + text.size() + at);
  put_little_endian(all, text.size(), length_bytes);
  all += text;
  for (const Entry& entry : entries) all += entry.bytes;
  return all;
}

TensorFile read_safetensors(std::shared_ptr<const std::string> content) {
  TensorFile file{.format = "safetensors", .tensors = {}, .notes = {}, .content = content};
  const std::string_view all = *content;
  std::uint64_t length = 0;
  require(all.size() >= length_bytes, "it is cut off: a safetensors file has 8 bytes or more");
  std::memcpy(&length, all.data(), sizeof length);
  require(length <= longest_header,
          fmt::format("its header has {} bytes; at most {} are read", length, longest_header));
  require(length <= all.size() - length_bytes,
          fmt::format("it is cut off: it has {} bytes, its header alone {}", all.size(), length));
  const Json header = parse_header(all.substr(length_bytes, length));
  require(header.is_object(), "its header is not an object");
  const std::string_view values = all.substr(length_bytes + length);
  std::vector<Placed> placed;
  for (const auto& [name, entry] : header.items()) {
    if (name != metadata) {
      placed.push_back(read_entry(name, entry));
      continue;
    }
    require(entry.is_object(), "its __metadata__ is not an object");
    for (const auto& [note, text] : entry.items()) {
      require(text.is_string(), fmt::format("its note '{}' is not a text", printable(note)));
      file.notes[note] = text.get<std::string>();
    }
  }
  require_no_gaps(placed, values.size());
  for (Placed& one : placed) {
    const std::string_view bytes = values.substr(one.begin, one.end - one.begin);
    one.tensor.bytes = [bytes](std::string&) { return bytes; };
    file.tensors.push_back(std::move(one.tensor));
  }
  return file;
}

}  // namespace lockstep::model
