#include "ports/cpu/units/point_runner.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

Shortcut::Shortcut(const Context& c, const Unit& unit, const Chunk& chunk)
    : from_(c.network.nodes[c.units[*unit.skip].node].shape),
      to_(c.network.nodes[unit.node].shape),
      rows_(chunk.count),
      stride_(unit.stride),
      value_bytes_(bytes_of(c.storage)) {}

template <class Copy>
void Shortcut::each_pixel_of_line(std::size_t n, std::size_t y, const Copy& copy) const {
  const std::size_t wide = from_.channels * value_bytes_, deep = to_.channels * value_bytes_;
  const std::size_t offset = (to_.channels - from_.channels) / 2 * value_bytes_;
  for (std::size_t x = 0; x < to_.width; ++x)
    copy(((n * from_.height + y * stride_) * from_.width + x * stride_) * wide,
         ((n * to_.height + y) * to_.width + x) * deep + offset, wide);
}

template <class Copy>
void Shortcut::each_pixel(const Copy& copy) const {
  for (std::size_t n = 0; n < rows_; ++n)
    for (std::size_t y = 0; y < to_.height; ++y) each_pixel_of_line(n, y, copy);
}

void Shortcut::pad(const std::byte* wide, std::byte* deep) const {
  std::memset(deep, 0, rows_ * to_.count() * value_bytes_);
  each_pixel(
      [&](std::size_t w, std::size_t d, std::size_t n) { std::memcpy(deep + d, wide + w, n); });
}

void Shortcut::pad(const Band& band, const std::byte* wide, std::byte* deep) const {
  std::memset(deep + (band.image * to_.height + band.first) * line_bytes(), 0,
              band.count * line_bytes());
  for (std::size_t y = band.first; y < band.first + band.count; ++y)
    each_pixel_of_line(band.image, y, [&](std::size_t w, std::size_t d, std::size_t n) {
      std::memcpy(deep + d, wide + w, n);
    });
}

void Shortcut::unpad(const std::byte* deep, std::byte* wide) const {
  std::memset(wide, 0, rows_ * from_.count() * value_bytes_);
  each_pixel(
      [&](std::size_t w, std::size_t d, std::size_t n) { std::memcpy(wide + w, deep + d, n); });
}

void PointRunner::plan() {
  shape_ = c.network.nodes[unit.node].shape;
  image_bytes_ = shape_.count() * bytes_of(c.storage);
  if (unit.in_region) z_ = c.value_buffer(image_bytes_ * c.spec.batch, index);
  if (!unit.kept) {
    places_[unit.level] = c.scratch(unit.level, image_bytes_);
    for (const std::size_t reader : unit.readers) {
      const std::size_t level = c.units[reader].level;
      if (!places_.contains(level)) places_[level] = c.scratch(level, image_bytes_);
    }
  }
  if (unit.pad) padded_ = c.scratch(unit.level, image_bytes_);

  std::size_t g_until = main().unit.level;
  if (unit.skip) g_until = std::min(g_until, c.units[*unit.skip].level);
  g_ = c.backward_buffer(image_bytes_ * c.spec.batch, unit.level, g_until);
  if (unit.pad) {
    const Unit& source = c.units[*unit.skip];
    unpadded_ =
        c.scratch(source.level, c.network.nodes[source.node].shape.count() * bytes_of(c.storage));
  }
}

void PointRunner::bind() { kept_ = c.kept[index]; }

ConvRunner* PointRunner::skip_conv() const {
  if (!unit.skip || c.units[*unit.skip].kind != UnitKind::conv) return nullptr;
  return static_cast<ConvRunner*>(c.runners[*unit.skip]);
}

void PointRunner::before_forward(std::size_t lane) {
  const Range range = part(shape_.channels, lane);
  main().norm.normalise(range.begin, range.end);
  if (ConvRunner* skip = skip_conv()) skip->norm.normalise(range.begin, range.end);
}

std::byte* PointRunner::output(const Chunk& chunk) const {
  return kept_ ? c.at(z_) + chunk.before(image_bytes_)
               : c.lane_at(chunk.lane, places_.at(chunk.region));
}

const std::byte* PointRunner::skip_value(const Chunk& chunk) {
  if (!unit.skip) return nullptr;
  const std::byte* skip = c.runners[*unit.skip]->value(chunk);
  if (!unit.pad) return skip;
  std::byte* padded = c.lane_at(chunk.lane, padded_);
  Shortcut(c, unit, chunk).pad(skip, padded);
  return padded;
}

void PointRunner::forward(const Chunk& chunk) {
  const BatchNorm& norm = main().norm;
  const ConvRunner* skip = skip_conv();
  c.kernels.point_forward(
      {main().value(chunk), norm.scale(), norm.shift(), skip_value(chunk),
       skip ? skip->norm.scale() : nullptr, skip ? skip->norm.shift() : nullptr, output(chunk)},
      values_of(chunk), shape_.channels);
}

const std::byte* PointRunner::value(const Chunk& chunk) {
  const bool at_hand = kept_ || (unit.in_region && chunk.region == unit.level);
  if (!at_hand) forward(chunk);
  return output(chunk);
}

void PointRunner::recompute(const Chunk& chunk) {
  if (!kept_) forward(chunk);
}

void PointRunner::backward(const Chunk& chunk) {
  const std::byte* contributions[2] = {gradient(chunk),
                                       nullptr};  // its only reader has written the gradient there
  if (unit.in_region) {
    check(unit.readers.size() <= 2, unit.name + ": the CPU backend sums at most two gradients");
    for (std::size_t i = 0; i < unit.readers.size(); ++i)
      contributions[i] = c.runners[unit.readers[i]]->input_gradient(chunk);
    if (unit.readers.size() == 1)
      contributions[1] = c.runners[unit.readers[0]]->second_gradient(chunk);
  }
  BatchNorm& norm = main().norm;
  ConvRunner* skip = skip_conv();
  double* sums = norm.gradient_sums(chunk.index);
  double* skip_sums = skip ? skip->norm.gradient_sums(chunk.index) : nullptr;
  const std::size_t channels = shape_.channels;
  PointBackward a{};
  a.first = contributions[0];
  a.second = contributions[1];
  a.z = unit.skip ? output(chunk) : nullptr;
  a.x = main().value(chunk);
  a.scale = norm.scale();
  a.shift = norm.shift();
  a.mean = norm.mean();
  a.g = gradient(chunk);
  a.sum_g = sums;
  a.sum_gx = sums + channels;
  if (skip) {
    a.skip_x = skip->value(chunk);
    a.skip_mean = skip->norm.mean();
    a.sum_gskip = skip_sums + channels;
  }
  c.kernels.point_backward(a, values_of(chunk), channels);
  if (skip) std::copy_n(sums, channels, skip_sums);
}

// The skip receives the sum's gradient unchanged; through option A, only the part that it
// contributed.
const std::byte* PointRunner::input_gradient(const Chunk& chunk) {
  if (!unit.pad) return gradient(chunk);
  std::byte* unpadded = c.lane_at(chunk.lane, unpadded_);
  Shortcut(c, unit, chunk).unpad(gradient(chunk), unpadded);
  return unpadded;
}

}  // namespace lockstep::cpu
