#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/gpu/steps/wanted.hpp"

// What poolings and option A's shortcut must leave: the kernels copy, add two numbers, or take the
// means of a few.
namespace lockstep::test::steps {

namespace {

/// Calls visit(input, output, pixels) for each value, the one of its cell, and how many pixels of
/// the image that cell has.
template <class Visit>
void each_in_cell(const nn::Node& node, const nn::Shape& in, std::size_t inputs, Visit visit) {
  const nn::Shape& out = node.shape;
  const auto has = [&](std::size_t cell, std::size_t size) {
    return std::min(node.stride, size - cell * node.stride);
  };
  for (std::size_t i = 0; i < inputs; ++i) {
    const std::size_t pixel = i / in.channels, y = pixel / in.width % in.height / node.stride,
                      x = pixel % in.width / node.stride, n = pixel / in.width / in.height;
    visit(i, ((n * out.height + y) * out.width + x) * in.channels + i % in.channels,
          static_cast<double>(has(y, in.height) * has(x, in.width)));
  }
}

}  // namespace

std::vector<Output> Wanted::mean_pool(const Unit& p) const {
  const Unit& input = unit(p.unit.input);
  const Numbers x = read(value(input));
  Sums mean(p.shape.count());
  each_in_cell(node(p), network_.nodes[input.unit.value].shape, x.size(),
               [&](std::size_t i, std::size_t o, double pixels) {
                 mean.add(o, x[i] / pixels, std::abs(x[i]) / pixels);
               });
  return {output(step_, "value", value(p), mean)};
}

std::vector<Output> Wanted::mean_gradient(const Unit& p) const {
  const Unit& input = unit(p.unit.input);
  const Sums g = gradient(p);
  Sums dx(input.shape.count());
  each_in_cell(node(p), network_.nodes[input.unit.value].shape, dx.value.size(),
               [&](std::size_t i, std::size_t o, double pixels) {
                 dx.add(i, g.value[o] / pixels, g.size[o] / pixels);
               });
  return {output(step_, "data gradient", stored(p.input_gradient, dx.value.size(), form_), dx)};
}

std::vector<Output> Wanted::max_pool(const Unit& p) const {
  const nn::Shape &in = network_.nodes[unit(p.unit.input).unit.value].shape, &out = node(p).shape;
  const Numbers x = read(value(unit(p.unit.input)));
  const std::size_t kernel = node(p).kernel;
  Output largest{step_, "value", value(p), Numbers(p.shape.count()), Numbers(p.shape.count())};
  Output index{step_, "index", stored(p.extra, p.shape.count(), Form::bytes),
               Numbers(p.shape.count()), Numbers(p.shape.count())};
  for (std::size_t i = 0; i < p.shape.count(); ++i) {
    const std::size_t ch = i % out.channels, pixel = i / out.channels, ox = pixel % out.width,
                      oy = pixel / out.width % out.height, n = pixel / out.width / out.height;
    double best = -std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < kernel * kernel; ++k) {
      const std::size_t row = oy * node(p).stride + k / kernel - node(p).padding,
                        column = ox * node(p).stride + k % kernel - node(p).padding;
      if (row >= in.height || column >= in.width) continue;  // above 0, too: they wrap around
      const double v = x[((n * in.height + row) * in.width + column) * in.channels + ch];
      if (v <= best) continue;
      best = v;
      index.want[i] = static_cast<double>(k);
    }
    largest.want[i] = best;
  }
  return {largest, index};
}

std::vector<Output> Wanted::subsample(const Unit& p) const {
  const nn::Shape &in = network_.nodes[unit(p.unit.input).unit.value].shape, &out = node(p).shape;
  const Numbers x = read(value(unit(p.unit.input)));
  const std::size_t before = (out.channels - in.channels) / 2;
  Output kept{step_, "value", value(p), Numbers(p.shape.count()), Numbers(p.shape.count())};
  for (std::size_t i = 0; i < p.shape.count(); ++i) {
    const std::size_t ch = i % out.channels - before, pixel = i / out.channels,
                      column = pixel % out.width * node(p).stride,
                      row = pixel / out.width % out.height * node(p).stride,
                      n = pixel / out.width / out.height;
    if (ch < in.channels)
      kept.want[i] = x[((n * in.height + row) * in.width + column) * in.channels + ch];
  }
  return {kept};
}

std::vector<Output> Wanted::window_gradient(const Unit& p) const {
  const Unit& input = unit(p.unit.input);
  const nn::Shape &in = network_.nodes[input.unit.value].shape, &out = node(p).shape;
  const Sums g = gradient(p);
  const bool pools = p.unit.kind == cuda::UnitKind::max_pool;
  const std::size_t kernel = node(p).kernel;
  const std::size_t before = pools ? 0 : (out.channels - in.channels) / 2;
  const Numbers index =
      pools ? read(stored(p.extra, g.value.size(), Form::bytes)) : Numbers(g.value.size());
  Sums dx(input.shape.count());
  for (std::size_t i = 0; i < g.value.size(); ++i) {
    const std::size_t ch = i % out.channels - before, pixel = i / out.channels,
                      at = static_cast<std::size_t>(index[i]),
                      row = pixel / out.width % out.height * node(p).stride + at / kernel,
                      column = pixel % out.width * node(p).stride + at % kernel,
                      n = pixel / out.width / out.height;
    if (ch >= in.channels) continue;  // one of the new channels
    dx.add(((n * in.height + row - node(p).padding) * in.width + column - node(p).padding) *
                   in.channels +
               ch,
           g.value[i], g.size[i]);
  }
  return {output(step_, "data gradient", stored(p.input_gradient, dx.value.size(), form_), dx)};
}

}  // namespace lockstep::test::steps
