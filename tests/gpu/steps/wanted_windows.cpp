#include <limits>

#include "tests/gpu/steps/wanted.hpp"

// What max pooling and option A's shortcut must leave: the kernels copy, or add two numbers.
namespace lockstep::test::steps {

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
