#include "lockstep/model/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/files/h5_writer.hpp"
#include "model/checkpoint_reader.hpp"
#include "model/seal.hpp"
#include "model/shape_text.hpp"

namespace lockstep::model {
namespace {

constexpr std::size_t one_value = 1;
constexpr h5::Writer::Shape single_shape(&one_value, 1);

void write_header(h5::Writer& file, const CheckpointHeader& header) {
  const auto number = [&file](const char* name, auto value) {
    file.attribute(name, single_shape, &value);
  };
  const auto numbers = [&file](const char* name, const std::vector<float>& values) {
    const std::size_t count = values.size();
    file.attribute(name, {&count, 1}, values.data());
  };
  const Progress& at = header.progress;
  number("step", at.step);
  number("epoch", at.epoch);
  number("batch", at.batch);
  number("epoch_loss_sum", at.loss_sum);
  number("epoch_rows", at.rows);
  number("epoch_top1", at.top1);
  number("best_top1", at.best_top1);
  number("best_epoch", at.best_epoch);
  const auto bytes = [&file](const char* name, const std::string& text) {
    const std::size_t count = text.size();
    file.data_set(name, {&count, 1}, reinterpret_cast<const std::uint8_t*>(text.data()));
  };
  bytes("network", header.network);
  bytes("config", header.config);
  file.attribute("backend", single_shape, header.backend, h5::Ending::zero);
  file.attribute("build", single_shape, header.build, h5::Ending::zero);
  number("world", header.world);
  number("replicas", header.replicas);
  if (!header.placement.empty()) bytes("placement", header.placement);
  number("train_rows", std::uint64_t{header.input.rows});
  number("metrics_bytes", header.metrics_bytes);
  number("channels", std::uint64_t{header.input.channels});
  number("height", std::uint64_t{header.input.height});
  number("width", std::uint64_t{header.input.width});
  file.attribute("fit", single_shape, choice_name(header.preparation.fit), h5::Ending::zero);
  number("short_side", std::uint64_t{header.preparation.short_side});
  file.data_set("classes", header.input.classes, h5::Ending::zero);
  if (const auto& bad_rows = header.progress.bad_rows; !bad_rows.empty()) {
    number("epoch_bad_rows", std::uint64_t{bad_rows.size()});
    file.data_set("bad_rows", bad_rows, h5::Ending::zero);
  }
  numbers("mean", header.input.mean);
  numbers("stddev", header.input.stddev);
}

void write_exchange(h5::Writer& file, const CheckpointHeader& header) {
  if (header.exchange == exact_exchange) return;
  file.attribute("exchange", single_shape, header.exchange, h5::Ending::zero);
  file.make_group("exchange");
  for (const auto& [name, bytes] : header.exchange_state) {
    const std::size_t count = bytes.size();
    file.data_set("exchange/" + name, {&count, 1},
                  reinterpret_cast<const std::uint8_t*>(bytes.data()));
  }
}

/// Only a precision that scales its loss has one; a run that resumes in another ignores it.
void write_loss_scale(h5::Writer& file, const backend::Parameters& parameters) {
  const std::optional<backend::LossScale> now = parameters.loss_scale();
  if (!now) return;
  const auto scale = static_cast<double>(now->scale);
  file.attribute("loss_scale", single_shape, &scale);
  const std::pair<const char*, std::uint64_t> counts[] = {
      {"loss_scale_good_steps", now->good_steps},
      {"skipped_in_a_row", now->skipped_in_a_row},
      {"skipped", now->skipped}};
  for (const auto& [name, count] : counts) file.attribute(name, single_shape, &count);
}

/// The group of a part's tensors.
std::string group_of(backend::Part part) {
  return part == backend::Part::weights          ? "weights"
         : part == backend::Part::momentum       ? "momentum"
         : part == backend::Part::second_moments ? "second_moments"
                                                 : "ema";
}

std::vector<backend::Part> parts_of(const backend::Parameters& parameters) {
  std::vector<backend::Part> parts{backend::Part::weights, backend::Part::momentum};
  if (parameters.has_average()) parts.push_back(backend::Part::average);
  if (parameters.has_second_moments()) parts.push_back(backend::Part::second_moments);
  return parts;
}

bool is_moment(backend::Part part) {
  return part == backend::Part::momentum || part == backend::Part::second_moments;
}

/// Frozen tensors have none.
bool has_momentum(const nn::ArenaLayout& layout, std::size_t slice) {
  return slice < layout.moving_slices() && nn::learned(layout.slices[slice].tensor.role);
}

/// Written where the file holds an average: the number of its tensors.
constexpr const char* average_attribute = "ema_tensors";
/// Written, as 1, where the file holds second moments.
constexpr const char* moments_attribute = "second_moments";

void read_loss_scale(const CheckpointReader& file, backend::Parameters& parameters) {
  if (!file.has("loss_scale")) return;
  backend::LossScale then;
  then.scale = static_cast<float>(file.real("loss_scale"));
  then.good_steps = static_cast<std::uint32_t>(file.count("loss_scale_good_steps"));
  then.skipped_in_a_row = static_cast<std::uint32_t>(file.count("skipped_in_a_row"));
  then.skipped = file.count("skipped");
  parameters.set_loss_scale(then);
}

void read_average(const CheckpointReader& file, backend::Parameters& parameters,
                  backend::Part into) {
  const auto& slices = parameters.layout().slices;
  std::vector<float> plain;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    plain.resize(slices[i].tensor.count());
    file.read("ema/" + slices[i].tensor.name, plain);
    parameters.import_slice(into, i, plain);
  }
}

/// Throws InputError unless the file has the tensors of `layout`, by name and shape.
void require_same_model(const std::filesystem::path& path, const CheckpointReader& file,
                        const nn::ArenaLayout& layout) {
  const auto names = file.names("weights");
  const auto other = [&](const std::string& what) {
    throw InputError(fmt::format("{}: a checkpoint of another model: {}", path.string(), what));
  };
  std::vector<nn::Tensor> tensors;
  for (const nn::Slice& slice : layout.slices) tensors.push_back(slice.tensor);
  // The error names the first tensor in the order of forward.
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.node < b.node; });
  for (const nn::Tensor& tensor : tensors) {
    if (!std::binary_search(names.begin(), names.end(), tensor.name))
      other(fmt::format("it has no tensor '{}'", tensor.name));
    const auto shape = file.shape("weights/" + tensor.name);
    if (shape != tensor.shape)
      other(fmt::format("tensor '{}' is {} there and {} here", tensor.name, shape_text(shape),
                        shape_text(tensor.shape)));
  }
  if (names.size() == tensors.size()) return;
  for (const std::string& name : names) {
    const auto same = [&name](const nn::Tensor& tensor) { return tensor.name == name; };
    if (std::none_of(tensors.begin(), tensors.end(), same))
      other(fmt::format("it has a tensor '{}' that this model lacks", name));
  }
}

}  // namespace

std::size_t checkpoint_bytes(const CheckpointHeader& header,
                             const backend::Parameters& parameters) {
  const nn::ArenaLayout& layout = parameters.layout();
  const std::size_t parts = parts_of(parameters).size();
  const std::size_t whole = parameters.has_average() ? 2 : 1;  // also of frozen layers
  const std::size_t floats = parts * layout.size + whole * layout.frozen_size;
  std::size_t bytes = floats * sizeof(float) + 512 * layout.slices.size() + 65536;
  for (const auto& [name, state] : header.exchange_state) bytes += state.size() + 512;
  return bytes;
}

CheckpointImage make_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                                const backend::Parameters& parameters,
                                std::shared_ptr<h5::SpareMemory> spare) {
  const nn::ArenaLayout& layout = parameters.layout();
  const h5::Session session;
  h5::Writer file = h5::Writer::in_memory(path, checkpoint_bytes(header, parameters),
                                          user_block_bytes, std::move(spare));
  write_header(file, header);
  write_exchange(file, header);
  write_loss_scale(file, parameters);
  if (parameters.has_average()) {
    const std::uint64_t tensors = layout.slices.size();
    file.attribute(average_attribute, single_shape, &tensors);
  }
  if (parameters.has_second_moments()) {
    const std::uint64_t held = 1;
    file.attribute(moments_attribute, single_shape, &held);
  }
  std::vector<float> plain;
  for (const backend::Part part : parts_of(parameters)) {
    const std::string group = group_of(part);
    file.make_group(group);
    for (std::size_t i = 0; i < layout.slices.size(); ++i) {
      const nn::Tensor& tensor = layout.slices[i].tensor;
      if (is_moment(part) && !has_momentum(layout, i)) continue;
      plain.resize(tensor.count());
      parameters.export_slice(part, i, plain);
      if (!std::all_of(plain.begin(), plain.end(), [](float x) { return std::isfinite(x); }))
        throw Error(fmt::format("{}: not written: {}/{} is not finite, training has diverged",
                                path.string(), group, tensor.name));
      file.data_set(group + '/' + tensor.name, tensor.shape, plain.data());
    }
  }
  return CheckpointImage(file.take_image());
}

std::string_view CheckpointImage::seal() {
  const std::span<char> image = image_.bytes();
  const std::string block = user_block(
      {image.data() + user_block_bytes, image.size() - user_block_bytes}, checkpoint_format);
  std::copy(block.begin(), block.end(), image.begin());
  return {image.data(), image.size()};
}

void write_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                      const backend::Parameters& parameters) {
  write_text_atomically(path, make_checkpoint(path, header, parameters).seal());
}

CheckpointHeader read_header(const std::filesystem::path& path) {
  CheckpointHeader header;
  header.format = verified_format(path);
  const CheckpointReader file(path);
  Progress& at = header.progress;
  at.step = file.count("step");
  at.epoch = file.count("epoch");
  at.batch = file.count("batch");
  at.loss_sum = file.real("epoch_loss_sum");
  at.rows = file.count("epoch_rows");
  at.top1 = file.count("epoch_top1");
  at.best_top1 = file.real("best_top1");
  at.best_epoch = file.count("best_epoch");
  if (file.has("epoch_bad_rows")) at.bad_rows = file.texts("bad_rows");
  if (header.explains_itself()) {
    header.network = file.bytes("network");
    header.preparation = file.preparation();
  }
  if (!header.explains_itself() || file.has_data_set("config"))
    header.config = file.bytes("config");
  header.backend = file.text("backend");
  header.build = file.text("build");
  header.world = file.count("world");
  header.replicas = file.has("replicas") ? file.count("replicas") : header.world;
  if (file.has_data_set("placement")) header.placement = file.bytes("placement");
  header.input.rows = file.count("train_rows");
  header.metrics_bytes = file.count("metrics_bytes");
  header.input.channels = file.count("channels");
  header.input.height = file.count("height");
  header.input.width = file.count("width");
  header.input.classes = file.texts("classes");
  header.input.mean = file.reals("mean", header.input.channels);
  header.input.stddev = file.reals("stddev", header.input.channels);
  if (!file.has("exchange")) return header;
  header.exchange = file.text("exchange");
  for (const std::string& name : file.names("exchange"))
    header.exchange_state[name] = file.bytes("exchange/" + name);
  return header;
}

std::vector<TensorEntry> list_tensors(const std::filesystem::path& path) {
  verify_checkpoint(path);
  const CheckpointReader file(path);
  std::vector<TensorEntry> tensors;
  std::vector<std::string> groups{"weights/", "momentum/"};
  if (file.has(average_attribute)) groups.emplace_back("ema/");
  if (file.has(moments_attribute)) groups.emplace_back("second_moments/");
  for (const std::string& group : groups)
    for (const std::string& name : file.names(group)) {
      TensorEntry tensor{group + name, file.shape(group + name), 0};
      const std::vector<float> values = file.tensor(tensor.name);
      tensor.crc32c = crc32c(values.data(), values.size() * sizeof(float));
      tensors.push_back(std::move(tensor));
    }
  return tensors;
}

void load_tensors(const std::filesystem::path& path, backend::Parameters& parameters,
                  bool momentum) {
  verify_checkpoint(path);
  const CheckpointReader file(path);
  const nn::ArenaLayout& layout = parameters.layout();
  require_same_model(path, file, layout);
  const bool moments = momentum && parameters.has_second_moments();
  require(!moments || file.has(moments_attribute),
          fmt::format("{}: holds no second moments: it was not trained with optim.rule = lamb",
                      path.string()));
  if (momentum) read_loss_scale(file, parameters);
  std::vector<float> plain;
  for (std::size_t i = 0; i < layout.slices.size(); ++i) {
    const nn::Tensor& tensor = layout.slices[i].tensor;
    plain.resize(tensor.count());
    file.read("weights/" + tensor.name, plain);
    parameters.import_slice(backend::Part::weights, i, plain);
    if (!momentum || !has_momentum(layout, i)) continue;
    file.read("momentum/" + tensor.name, plain);
    parameters.import_slice(backend::Part::momentum, i, plain);
    if (!moments) continue;
    file.read("second_moments/" + tensor.name, plain);
    parameters.import_slice(backend::Part::second_moments, i, plain);
  }
  if (!momentum || !parameters.has_average()) return;
  if (file.has(average_attribute))
    read_average(file, parameters, backend::Part::average);
  else
    parameters.start_average();
}

void load_average(const std::filesystem::path& path, backend::Parameters& parameters) {
  verify_checkpoint(path);
  const CheckpointReader file(path);
  require(file.has(average_attribute),
          fmt::format("{}: holds no average of the weights: it was trained with optim.ema = 0",
                      path.string()));
  require_same_model(path, file, parameters.layout());
  read_average(file, parameters, backend::Part::weights);
}

}  // namespace lockstep::model
