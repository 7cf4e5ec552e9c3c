#include "lockstep/model/formats/formats.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"
#include "model/description.hpp"
#include "model/formats/readers.hpp"
#include "model/formats/stored_tensor.hpp"

namespace lockstep::model {
namespace {

constexpr std::array table = {
    Format{".safetensors", "safetensors", safetensors_bytes},
    Format{".pth", "PyTorch", pth_bytes},
    Format{".pt", "PyTorch", pth_bytes},
    Format{".npz", "numpy", npz_bytes},
    Format{".onnx", "ONNX", onnx_bytes, onnx_bytes},
};
// A ResNet-152 with the state of its optimizer has 0.7 GB.
constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 32;
constexpr std::size_t most_begin = 32;

const Format* find_format(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const auto found = std::find_if(table.begin(), table.end(), [&](const Format& format) {
    return name.ends_with(format.ending);
  });
  return found == table.end() ? nullptr : &*found;
}

/// A header of JSON that is not absurdly long.
bool looks_like_safetensors(std::string_view begin) {
  std::uint64_t length = 0;
  if (begin.size() <= sizeof length || begin[sizeof length] != '{') return false;
  std::memcpy(&length, begin.data(), sizeof length);
  return length < largest_file;
}

/// What the reader of one format makes of the file; its errors get the path.
template <class Work>
auto in_file(const std::filesystem::path& path, Work&& work) {
  try {
    return work();
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

TensorFile parse(std::shared_ptr<const std::string> content, const Format* by_name) {
  if (looks_like_old_pth(*content)) return read_old_pth(content);
  if (looks_like_zip(*content)) {
    const auto zip = std::make_shared<const ZipReader>(*content);
    TensorFile file = is_pth(*zip)   ? read_pth(zip)
                      : is_npz(*zip) ? read_npz(zip)
                                     : throw InputError(
                                           "it is a zip, but neither PyTorch's nor "
                                           "numpy's");
    file.content = content;
    return file;
  }
  const auto has_ending = [by_name](std::string_view ending) {
    return by_name != nullptr && by_name->ending == ending;
  };
  if (looks_like_onnx(*content) || has_ending(".onnx")) return read_onnx(content);
  if (has_ending(".safetensors") || looks_like_safetensors(*content))
    return read_safetensors(content);
  throw InputError(
      "it holds no tensors in a form that is known: safetensors, ONNX, PyTorch's or numpy's");
}

/// A model with a description, but without the network.
Model describe_input(const nn::ResNetSpec& spec, const TensorFile& file,
                     const data::DataSetInfo* rows) {
  Model model;
  data::DataSetInfo& input = model.about.input;
  input.channels = spec.channels;
  input.height = spec.height;
  input.width = spec.width;
  if (rows != nullptr && rows->channels == spec.channels) {
    if (rows->encoding == data::Encoding::raw) {
      input.height = rows->height;
      input.width = rows->width;
    }
    input.element = rows->element;
    input.no_data = rows->no_data;
    input.shaping = rows->shaping;
    input.mean = rows->mean;
    input.stddev = rows->stddev;
  }
  model.about.preparation = {Resized::others,
                             usual_short_side(std::min(input.height, input.width))};
  apply_notes(file.notes, model);
  return model;
}

Model make_model(const TensorFile& file, const data::DataSetInfo* rows, bool may_lack_head) {
  const ByName tensors = by_name(file);
  nn::ResNetSpec spec = deduce(tensors, may_lack_head);
  Model model = describe_input(spec, file, rows);
  spec.height = model.about.input.height;
  spec.width = model.about.input.width;
  model.about.network = nn::resnet(spec);
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += count_of(tensor->shape) * sizeof(float);
  require(bytes <= memory_for(file.content->size()),
          fmt::format("its tensors have {} bytes of floats, too many for a file of {}", bytes,
                      file.content->size()));
  for (const nn::Slice& slice : nn::arena_layout(model.about.network, [](const nn::Tensor& one) {
                                  return one.count();
                                }).slices) {
    if (!tensors.contains(slice.tensor.name)) continue;  // the last layer's
    Weight weight{slice.tensor, values_of(*tensors.at(slice.tensor.name))};
    require_finite(weight);
    model.weights.push_back(std::move(weight));
  }
  for (const StoredTensor& tensor : file.tensors)
    if (counts_batches(tensor.name))
      model.steps = std::max(model.steps, static_cast<std::uint64_t>(count_in(tensor)));
  check_notes(file.notes, model);
  return model;
}

}  // namespace

std::span<const Format> formats() { return table; }

std::string format_endings() {
  std::vector<std::string> endings;
  for (const Format& format : table) endings.emplace_back(format.ending);
  return join(endings, ", ");
}

const Format& format_of(const std::filesystem::path& path) {
  const Format* found = find_format(path);
  require(found != nullptr,
          fmt::format("{}: the name must end in {}", path.string(), format_endings()));
  return *found;
}

TensorFile open_tensor_file(const std::string& path) {
  std::error_code none;
  const std::uintmax_t bytes = std::filesystem::file_size(path, none);
  require(none || bytes < largest_file, fmt::format("{}: has {}, more than any ResNet", path,
                                                    human_bytes(static_cast<double>(bytes))));
  const auto content = std::make_shared<const std::string>(read_text(path));
  return in_file(path, [&] { return parse(content, find_format(path)); });
}

bool is_weights_file(const std::filesystem::path& path) {
  require_regular(path);
  if (std::filesystem::is_directory(path) || looks_like_checkpoint(path)) return false;
  std::string begin(most_begin, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), most_begin);
  begin.resize(static_cast<std::size_t>(file.gcount()));
  return looks_like_zip(begin) || looks_like_old_pth(begin) || looks_like_safetensors(begin) ||
         looks_like_onnx(begin) || find_format(path) != nullptr;
}

ModelOfFile read_weights(const std::filesystem::path& path, const data::DataSetInfo* rows,
                         bool may_lack_head) {
  const TensorFile file = open_tensor_file(path);
  Model model = in_file(path, [&] { return make_model(file, rows, may_lack_head); });
  judge(model.about, path);
  return {std::move(model), file.format};
}

Model load_any(const std::filesystem::path& path, const DescribeOld& describe_old,
               backend::Part part, const data::DataSetInfo* rows, bool may_lack_head) {
  if (!is_weights_file(path)) return load(path, describe_old, part);
  require(
      part == backend::Part::weights,
      fmt::format("{}: holds no average of the weights: only a checkpoint does", path.string()));
  return read_weights(path, rows, may_lack_head).model;
}

}  // namespace lockstep::model
