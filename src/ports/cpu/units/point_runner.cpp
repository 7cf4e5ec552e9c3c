#include "ports/cpu/units/point_runner.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

Shortcut::Shortcut(const Context& c, const Unit& unit, const Map& deep)
    : from_(c.runners[*unit.skip]->map),
      to_(deep),
      stride_(unit.stride),
      value_bytes_(bytes_of(c.storage)) {}

std::size_t Shortcut::wide_line(std::size_t deep) const {
  return deep / to_.shape.height * from_.shape.height + deep % to_.shape.height * stride_;
}

nn::LineRange Shortcut::wide_lines(const nn::LineRange& deep) const {
  const std::size_t first = wide_line(deep.first);
  return {first, wide_line(deep.end() - 1) + 1 - first};
}

/// Those of a line: offsets in both lines, and bytes.
template <class Copy>
void Shortcut::each_pixel(const Copy& copy) const {
  const std::size_t wide = from_.shape.channels * value_bytes_,
                    deep = to_.shape.channels * value_bytes_, middle = (deep - wide) / 2;
  for (std::size_t x = 0; x < to_.shape.width; ++x)
    copy(x * stride_ * wide, x * deep + middle, wide);
}

void Shortcut::pad(const nn::LineRange& lines, const std::byte* wide, std::byte* deep) const {
  std::memset(deep, 0, lines.count * to_.line_bytes);
  for (std::size_t i = 0; i < lines.count; ++i) {
    const std::byte* from =
        wide + (wide_line(lines.first + i) - wide_line(lines.first)) * from_.line_bytes;
    each_pixel([&](std::size_t w, std::size_t d, std::size_t n) {
      std::memcpy(deep + i * to_.line_bytes + d, from + w, n);
    });
  }
}

void Shortcut::unpad(const nn::LineRange& lines, const std::byte* deep, std::byte* wide) const {
  std::memset(wide, 0, lines.count * from_.line_bytes);
  for (std::size_t i = 0; i < lines.count; ++i) {
    const std::size_t image = (lines.first + i) / from_.shape.height,
                      line = (lines.first + i) % from_.shape.height;
    if (line % stride_ != 0 || line / stride_ >= to_.shape.height) continue;
    const std::byte* from = deep + to_.offset({image * to_.shape.height + line / stride_, 1});
    each_pixel([&](std::size_t w, std::size_t d, std::size_t n) {
      std::memcpy(wide + i * from_.line_bytes + w, from + d, n);
    });
  }
}

void PointRunner::plan() {
  if (unit.in_region) z_ = c.value_buffer(map.bytes() * c.spec.batch, index);
  if (!unit.kept) plan_places();
  if (unit.pad) padded_ = c.scratch(unit.level, map);

  std::size_t g_until = main().unit.level;
  if (unit.skip) g_until = std::min(g_until, c.units[*unit.skip].level);
  gradient_map_ = map.with(c.held[index].gradient);
  g_ = c.backward_buffer(gradient_map_.bytes() * c.spec.batch, unit.level, g_until);
  if (unit.pad)
    unpadded_ = c.scratch(c.units[*unit.skip].level, Shortcut(c, unit, gradient_map_).wide_map());
}

void PointRunner::plan_places() {
  std::map<std::size_t, std::size_t> most{{unit.level, c.most_lines(unit.level, map)}};
  for (const std::size_t reader : unit.readers) {
    std::size_t& lines = most[c.units[reader].level];
    lines = std::max(lines, c.most_lines(c.units[reader].level, map, reader));
  }
  for (const auto& [level, lines] : most)
    places_[level] = c.fixed_scratch(level, lines * map.line_bytes);
}

void PointRunner::bind() { kept_ = c.kept[index]; }

void PointRunner::plan_messages() {
  if (!unit.in_region) return;
  if (c.kept[index]) c.share_lines(c.made_values[unit.level], z_, map, index, &UnitLines::value);
  c.share_lines(c.made_gradients[unit.level], g_, gradient_map_, index, &UnitLines::gradient);
}

ConvRunner* PointRunner::skip_conv() const {
  if (!unit.skip || c.units[*unit.skip].kind != UnitKind::conv) return nullptr;
  return static_cast<ConvRunner*>(c.runners[*unit.skip]);
}

void PointRunner::before_forward(std::size_t lane) {
  const Range range = part(map.shape.channels, lane);
  main().norm.normalise(range.begin, range.end);
  if (ConvRunner* skip = skip_conv()) skip->norm.normalise(range.begin, range.end);
}

std::byte* PointRunner::output(const Chunk& chunk, const nn::LineRange& lines) const {
  return kept_ ? c.at(z_) + map.offset(lines) : c.lane_at(chunk.lane, places_.at(chunk.region));
}

const std::byte* PointRunner::skip_value(const Chunk& chunk, const nn::LineRange& lines) {
  if (!unit.skip) return nullptr;
  Runner& skip = *c.runners[*unit.skip];
  if (!unit.pad) return skip.value(chunk, lines);
  const Shortcut shortcut(c, unit, gradient_map_);
  std::byte* padded = c.lane_at(chunk.lane, padded_);
  shortcut.pad(lines, skip.value(chunk, shortcut.wide_lines(lines)), padded);
  return padded;
}

void PointRunner::make(const Chunk& chunk, const nn::LineRange& lines) {
  const BatchNorm& norm = main().norm;
  const ConvRunner* skip = skip_conv();
  c.kernels.point_forward({main().value(chunk, lines), norm.scale(), norm.shift(),
                           skip_value(chunk, lines), skip ? skip->norm.scale() : nullptr,
                           skip ? skip->norm.shift() : nullptr, output(chunk, lines)},
                          map.pixels(lines), map.shape.channels);
}

void PointRunner::forward(const Chunk& chunk) { make(chunk, map.of(chunk)); }

const std::byte* PointRunner::value(const Chunk& chunk, const nn::LineRange& lines) {
  const bool at_hand = kept_ || (unit.in_region && chunk.region == unit.level);
  if (!at_hand) make(chunk, lines);
  return output(chunk, lines);
}

void PointRunner::recompute(const Chunk& chunk) {
  if (!kept_) forward(chunk);
}

void PointRunner::backward(const Chunk& chunk) {
  const nn::LineRange own = map.of(chunk);
  const std::byte* contributions[2] = {gradient(own),
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
  const std::size_t channels = map.shape.channels;
  PointBackward a{};
  a.first = contributions[0];
  a.second = contributions[1];
  a.z = unit.skip ? output(chunk, own) : nullptr;
  a.x = main().value(chunk, own);
  a.scale = norm.scale();
  a.shift = norm.shift();
  a.mean = norm.mean();
  a.g = gradient(own);
  a.sum_g = sums;
  a.sum_gx = sums + channels;
  if (skip) {
    a.skip_x = skip->value(chunk, own);
    a.skip_mean = skip->norm.mean();
    a.sum_gskip = skip_sums + channels;
  }
  c.kernels.point_backward(a, map.pixels(own), channels);
  if (skip) std::copy_n(sums, channels, skip_sums);
}

// The skip receives the sum's gradient unchanged; through option A, only the part that it
// contributed.
const std::byte* PointRunner::input_gradient(const Chunk& chunk) {
  if (!unit.pad) return gradient(map.of(chunk));
  const Shortcut shortcut(c, unit, gradient_map_);
  std::byte* unpadded = c.lane_at(chunk.lane, unpadded_);
  shortcut.unpad(shortcut.wide_map().of(chunk), c.at(g_), unpadded);
  return unpadded;
}

}  // namespace lockstep::cpu
