#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/files/h5_writer.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "model/seal.hpp"

namespace lockstep::model {
namespace {

constexpr std::size_t one_value = 1;
constexpr h5::Writer::Shape single_shape(&one_value, 1);

void write_shaping(h5::Writer& file, const data::Shaping& shaping) {
  if (!shaping.any()) return;
  file.attribute("curve", single_shape, choice_name(shaping.curve), h5::Ending::zero);
  const std::size_t channels = shaping.low.size();
  if (channels == 0) return;
  file.attribute("clip_low", {&channels, 1}, shaping.low.data());
  file.attribute("clip_high", {&channels, 1}, shaping.high.data());
}

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
  number(at.score.empty() ? "best_top1" : "best_score", at.best_score);
  number("best_epoch", at.best_epoch);
  if (!at.score.empty()) file.attribute("score", single_shape, at.score, h5::Ending::zero);
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
  number("train_rows_hash", header.input.rows_hash);
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
  if (header.input.element != data::Element::u8)
    file.attribute("element", single_shape, choice_name(header.input.element), h5::Ending::zero);
  if (header.input.no_data) file.attribute("no_data", {}, &*header.input.no_data);
  write_shaping(file, header.input.shaping);
  numbers("mean", header.input.mean);
  numbers("stddev", header.input.stddev);
  if (header.input.task == data::Task::classes) return;
  file.attribute("task", single_shape, choice_name(header.input.task), h5::Ending::zero);
  const std::size_t sums = at.sums.size();
  file.attribute("epoch_sums", {&sums, 1}, at.sums.data());
  if (header.input.task != data::Task::values) return;
  const std::size_t values = header.input.target_mean.size();
  file.data_set("target_mean", {&values, 1}, header.input.target_mean.data());
  file.data_set("target_stddev", {&values, 1}, header.input.target_stddev.data());
}

/// What is put into its place when the file has one: all of a state, by all threads.
struct Fill {
  std::uint64_t place = 0;
  std::function<bool(char* to)> put;  ///< false: the values are not finite
  std::string name = {};
};

/// As long with any checksums.
std::string parts_text(const std::vector<ExchangePart>& parts) {
  std::string text;
  for (const auto& [name, bytes, sum] : parts)
    text += fmt::format("{} {} {:08x}\n", name, bytes, sum);
  return text;
}

void reserve_exchange(h5::Writer& file, const CheckpointHeader& header,
                      const std::vector<ExchangePart>& parts, std::vector<Fill>& fills) {
  if (header.exchange == exact_exchange) return;
  file.attribute("exchange", single_shape, header.exchange, h5::Ending::zero);
  file.make_group("exchange");
  for (const auto& [name, bytes] : header.exchange_state) {
    const std::size_t count = bytes.size();
    fills.push_back(
        {file.reserve<std::uint8_t>("exchange/" + name, {&count, 1}), [&bytes = bytes](char* to) {
           std::copy(bytes.begin(), bytes.end(), to);
           return true;
         }});
  }
  if (parts.empty()) return;
  const std::size_t count = parts_text(parts).size();
  fills.push_back({file.reserve<std::uint8_t>(parts_name, {&count, 1}), [](char*) { return true; },
                   parts_name});
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

/// HDF5's own: about what it writes about its data sets.
std::size_t record_bytes(const CheckpointHeader& header, const backend::Parameters& parameters) {
  const std::size_t data_sets = parts_of(parameters).size() * parameters.layout().slices.size() +
                                header.exchange_state.size() + 1;
  return 8192 + 512 * data_sets;
}

void reserve_tensors(h5::Writer& file, const backend::Parameters& parameters,
                     std::vector<Fill>& fills) {
  const nn::ArenaLayout& layout = parameters.layout();
  for (const backend::Part part : parts_of(parameters)) {
    const std::string group = group_of(part);
    file.make_group(group);
    for (std::size_t i = 0; i < layout.slices.size(); ++i) {
      const nn::Tensor& tensor = layout.slices[i].tensor;
      if (is_moment(part) && !has_momentum(layout, i)) continue;
      const std::string name = group + '/' + tensor.name;
      fills.push_back({file.reserve<float>(name, tensor.shape),
                       [&parameters, part, i, count = tensor.count()](char* to) {
                         const std::span<float> plain(reinterpret_cast<float*>(to), count);
                         parameters.export_slice(part, i, plain);
                         return all_finite(plain);
                       },
                       name});
    }
  }
}

/// The file without what `fills` puts into it.
h5::FileImage make_places(const std::filesystem::path& path, const CheckpointHeader& header,
                          const backend::Parameters& parameters,
                          std::shared_ptr<h5::SpareMemory> spare,
                          const std::vector<ExchangePart>& parts, std::vector<Fill>& fills) {
  const h5::Session session;
  h5::Writer file = h5::Writer::in_memory(path, {.bytes = 65536,
                                                 .records = record_bytes(header, parameters),
                                                 .user_block = user_block_bytes,
                                                 .spare = std::move(spare)});
  write_header(file, header);
  write_loss_scale(file, parameters);
  if (parameters.has_average()) {
    const std::uint64_t tensors = parameters.layout().slices.size();
    file.attribute(average_attribute, single_shape, &tensors);
  }
  if (parameters.has_second_moments()) {
    const std::uint64_t held = 1;
    file.attribute(moments_attribute, single_shape, &held);
  }
  reserve_exchange(file, header, parts, fills);
  reserve_tensors(file, parameters, fills);
  return file.take_image();
}

}  // namespace

std::size_t checkpoint_bytes(const CheckpointHeader& header,
                             const backend::Parameters& parameters) {
  const nn::ArenaLayout& layout = parameters.layout();
  const std::size_t parts = parts_of(parameters).size();
  const std::size_t whole = parameters.has_average() ? 2 : 1;  // also of frozen layers
  const std::size_t floats = parts * layout.size + whole * layout.frozen_size;
  std::size_t bytes = floats * sizeof(float) + 65536 + record_bytes(header, parameters);
  for (const auto& [name, state] : header.exchange_state) bytes += state.size();
  return bytes;
}

CheckpointImage make_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                                const backend::Parameters& parameters,
                                std::shared_ptr<h5::SpareMemory> spare,
                                std::vector<ExchangePart> parts) {
  std::vector<Fill> fills;
  h5::FileImage image = make_places(path, header, parameters, std::move(spare), parts, fills);
  std::vector<char> finite(fills.size());  // threads write to different elements
  parameters.for_each(fills.size(), [&](std::size_t i) {
    finite[i] = fills[i].put(image.bytes().data() + fills[i].place);
  });
  const auto bad = static_cast<std::size_t>(std::ranges::find(finite, 0) - finite.begin());
  if (bad < fills.size())
    throw Error(fmt::format("{}: not written: {} is not finite, training has diverged",
                            path.string(), fills[bad].name),
                Ending::diverged);
  const auto list = std::ranges::find(fills, parts_name, &Fill::name);
  const bool other_task =
      header.input.task != data::Task::classes || !header.progress.score.empty();
  const int format = header.input.shaping.any()        ? format_with_shaping
                     : other_task                      ? format_with_task
                     : !header.input.has_plain_bytes() ? format_with_element
                     : parts.empty()                   ? checkpoint_format
                                                       : format_with_parts;
  return {std::move(image), std::move(parts), list == fills.end() ? 0 : list->place, format};
}

void CheckpointImage::count(std::string_view bytes) {
  while (!bytes.empty()) {
    check(part_ < parts_.size(), "more of an exchange's state than was said");
    ExchangePart& part = parts_[part_];
    const std::string_view its = bytes.substr(0, part.bytes - counted_);
    part.crc32c = crc32c(its.data(), its.size(), part.crc32c);
    counted_ += its.size();
    bytes.remove_prefix(its.size());
    if (counted_ < part.bytes) continue;
    ++part_;
    counted_ = 0;
  }
}

std::string_view CheckpointImage::seal() {
  check(part_ == parts_.size(), "less of an exchange's state than was said");
  const std::span<char> image = image_.bytes();
  const std::string list = parts_text(parts_);
  std::copy(list.begin(), list.end(), image.begin() + static_cast<std::ptrdiff_t>(place_));
  std::uint64_t more = 0;
  for (const ExchangePart& part : parts_) more += part.bytes;
  const std::string block =
      user_block({image.data() + user_block_bytes, image.size() - user_block_bytes}, format_, more);
  std::copy(block.begin(), block.end(), image.begin());
  return {image.data(), image.size()};
}

void write_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                      const backend::Parameters& parameters) {
  write_text_atomically(path, make_checkpoint(path, header, parameters).seal());
}

}  // namespace lockstep::model
