#include "ports/cpu/units/boundary_runner.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/data/element_bytes.hpp"

namespace lockstep::cpu {
namespace {

constexpr std::size_t usual_period = 48;  // whole pixels of 1 to 4 channels

}  // namespace

void BoundaryRunner::plan() {
  check(gradients() <= 2, unit.name + ": the CPU backend sums at most two gradients");
  passed_ = map.with(c.spec.tile.of(map.shape.height));
  for (std::size_t slot = 0; slot < c.spec.slots && !c.spec.planned; ++slot)
    memory_.emplace_back(value_bytes() * (1 + gradients()));
}

std::size_t BoundaryRunner::bytes() const {
  return c.spec.slots * value_bytes() * (1 + gradients());
}

backend::Boundary BoundaryRunner::boundary() {
  std::byte* data = memory_[c.slot].data();
  return {{data, value_bytes()}, {data + value_bytes(), value_bytes() * gradients()}};
}

std::byte* BoundaryRunner::value_at(const nn::LineRange& lines) const {
  return memory_[c.slot].data() + passed_.offset(lines);
}

std::byte* BoundaryRunner::gradient_at(const Chunk& chunk, std::size_t which) const {
  return value_at(map.of(chunk)) + (1 + which) * value_bytes();
}

void ReceiveRunner::plan() {
  BoundaryRunner::plan();
  if (!c.spec.tile.is_whole()) of_tiles_ = c.value_buffer(map.bytes() * c.spec.batch, index);
}

void ReceiveRunner::plan_messages() {
  c.share_lines(c.made_values[unit.level], *of_tiles_, map, index, &UnitLines::value);
}

void ReceiveRunner::forward(const Chunk& chunk) {
  if (!of_tiles_) return;
  const nn::LineRange own = map.of(chunk);
  std::memcpy(c.at(*of_tiles_) + map.offset(own), value_at(own), own.count * map.line_bytes);
}

void ReceiveRunner::backward(const Chunk& chunk) {
  for (std::size_t i = 0; i < gradients(); ++i)
    std::memcpy(gradient_at(chunk, i), c.runners[unit.readers[i]]->input_gradient(chunk),
                map.of(chunk).count * map.line_bytes);
}

void SendRunner::forward(const Chunk& chunk) {
  const nn::LineRange own = map.of(chunk);
  std::memcpy(value_at(own), c.runners[*unit.input]->value(chunk), own.count * map.line_bytes);
}

Image::Image(Context& context) : c(context), rows_(context.spec.slots) {
  if (c.network.nodes.front().op != nn::Op::input) return;  // a later stage
  const std::size_t channels = c.network.input.channels;
  check(c.spec.mean.size() == channels && c.spec.stddev.size() == channels,
        "mean and deviation must have one value for each channel");
  const std::size_t period = usual_period % channels == 0 ? usual_period : std::lcm(16, channels);
  for (std::size_t i = 0; i < period; ++i) {
    const auto [a, b] = backend::entry_of(c.spec, i % channels);
    a_.push_back(a);
    b_.push_back(b);
  }
}

void Image::plan(std::size_t region, std::size_t reader) {
  places_[region] = c.scratch(region, Map(c.network.input, c.storage), reader);
}

const std::byte* Image::value(const Chunk& chunk, const nn::LineRange& lines) const {
  const std::size_t line = c.network.input.width * c.network.input.channels;
  std::byte* out = c.lane_at(chunk.lane, places_.at(chunk.region));
  values(lines.first * line, lines.count * line, out);
  return out;
}

void Image::values(std::size_t first, std::size_t count, std::byte* out) const {
  const LoadedRows& rows = rows_[c.slot];
  const data::Element element = c.spec.element;
  if (rows.floats)
    c.kernels.from_float(rows.floats + first, count, out);
  else if (c.spec.shaping.any())
    shaped_values(first, count, out);
  else if (element == data::Element::u8 && a_.size() == usual_period && !c.spec.no_data)
    c.kernels.normalise(rows.bytes + first, count, a_.data(), b_.data(), out);
  else
    c.kernels.enter(
        element, rows.bytes + first * data::bytes_of(element), count,
        {.a = a_.data(), .b = b_.data(), .period = a_.size(), .no_data = c.spec.no_data}, out);
}

void Image::shaped_values(std::size_t first, std::size_t count, std::byte* out) const {
  constexpr std::size_t piece = 1024;
  const data::Element element = c.spec.element;
  float entered[piece];
  for (std::size_t done = 0; done < count; done += piece) {
    const std::size_t values = std::min(count - done, piece),
                      bytes = values * data::bytes_of(element);
    const std::uint8_t* from = rows_[c.slot].bytes + (first + done) * data::bytes_of(element);
    for_each_value(element, {from, bytes}, [&](std::size_t i, float value) {
      const std::size_t at = (first + done + i) % a_.size();
      entered[i] = data::stands_for_none(c.spec.no_data, value)
                       ? 0
                       : backend::arithmetic::entered(
                             data::shaped(c.spec.shaping, at % c.network.input.channels, value),
                             {a_[at], b_[at]});
    });
    c.kernels.from_float(entered, values, out + done * bytes_of(c.storage));
  }
}

}  // namespace lockstep::cpu
