#include "tests/support/networks/oracle.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"

namespace lockstep::test {

namespace {

using nn::Node;
using nn::Op;
using nn::Shape;

std::size_t at(const Shape& s, std::size_t n, std::size_t y, std::size_t x, std::size_t c) {
  return ((n * s.height + y) * s.width + x) * s.channels + c;
}

/// Calls body(output y, output x, input y, input x, ky, kx) for every pair that a window joins.
template <class Body>
void each_window(const Node& node, const Shape& in, const Body& body) {
  for (std::size_t oy = 0; oy < node.shape.height; ++oy)
    for (std::size_t ox = 0; ox < node.shape.width; ++ox)
      for (std::size_t ky = 0; ky < node.kernel; ++ky)
        for (std::size_t kx = 0; kx < node.kernel; ++kx) {
          const std::size_t y = oy * node.stride + ky, x = ox * node.stride + kx;
          if (y < node.padding || x < node.padding) continue;
          if (y - node.padding >= in.height || x - node.padding >= in.width) continue;
          body(oy, ox, y - node.padding, x - node.padding, ky, kx);
        }
}

/// Calls body(output index, input index, share of it) for every value of an average pooling.
template <class Body>
void each_in_cell(const Node& node, const Shape& in, std::size_t rows, const Body& body) {
  const bool is_global = node.op == Op::global_avg_pool;  // one cell
  const std::size_t high = is_global ? in.height : node.stride,
                    wide = is_global ? in.width : node.stride;
  for (std::size_t n = 0; n < rows; ++n)
    for (std::size_t y = 0; y < in.height; ++y)
      for (std::size_t x = 0; x < in.width; ++x) {
        const std::size_t oy = y / high, ox = x / wide;
        const std::size_t pixels =
            std::min(high, in.height - oy * high) * std::min(wide, in.width - ox * wide);
        const double share = 1 / static_cast<double>(pixels);
        for (std::size_t c = 0; c < in.channels; ++c)
          body(at(node.shape, n, oy, ox, c), at(in, n, y, x, c), share);
      }
}

/// Calls body(output index, input index) for every value that option A's subsampling keeps; the new
/// channels on both sides are left out.
template <class Body>
void each_kept(const Node& node, const Shape& in, std::size_t rows, const Body& body) {
  const std::size_t before = (node.shape.channels - in.channels) / 2;
  for (std::size_t n = 0; n < rows; ++n)
    for (std::size_t y = 0; y < node.shape.height; ++y)
      for (std::size_t x = 0; x < node.shape.width; ++x)
        for (std::size_t c = 0; c < in.channels; ++c)
          body(at(node.shape, n, y, x, c + before), at(in, n, y * node.stride, x * node.stride, c));
}

/// Calls body(output, input, place of their weight) for the pixel (ky, kx) of a window.
template <class Body>
void each_weight(const Node& node, std::size_t in_channels, std::size_t ky, std::size_t kx,
                 const Body& body) {
  const std::size_t ins = in_channels / node.groups, outs = node.shape.channels / node.groups;
  for (std::size_t o = 0; o < node.shape.channels; ++o)
    for (std::size_t i = 0; i < ins; ++i)
      body(o, o / outs * ins + i, ((o * ins + i) * node.kernel + ky) * node.kernel + kx);
}

double wanted(const data::Target& t, std::size_t k, std::size_t classes, double smoothing) {
  const double a = static_cast<std::size_t>(t.label_a) == k ? t.mix : 0;
  const double b = static_cast<std::size_t>(t.label_b) == k ? 1 - t.mix : 0;
  return (1 - smoothing) * (a + b) + smoothing / static_cast<double>(classes);
}

}  // namespace

double Oracle::forward(const std::vector<double>& images,
                       const std::vector<data::Target>& targets) {
  rows_ = targets.size();
  targets_ = targets;
  margin_ = 1e300;
  values_.assign(network_.nodes.size(), {});
  values_[0] = images;
  for (std::size_t i = 1; i < network_.nodes.size(); ++i) values_[i] = run(i);
  return values_.back()[0];
}

const std::vector<double>& Oracle::logits() const {
  return values_[network_.nodes.back().inputs[0]];
}

Oracle::Values Oracle::run(std::size_t index) {
  const Node& node = network_.nodes[index];
  const Values& in = values_[node.inputs[0]];
  const Shape& from = input_shape(node);
  Values out(rows_ * node.shape.count());
  switch (node.op) {
    case Op::conv:
      return conv(node, in);
    case Op::batch_norm:
      return batch_norm(node, in);
    case Op::max_pool:
      return max_pool(node, in);
    case Op::relu:
      for (std::size_t i = 0; i < in.size(); ++i) {
        margin_ = std::min(margin_, std::abs(in[i]));
        out[i] = std::max(in[i], 0.0);
      }
      return out;
    case Op::add:
      for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] + values_[node.inputs[1]][i];
      return out;
    case Op::avg_pool:
    case Op::global_avg_pool:
      each_in_cell(node, from, rows_,
                   [&](auto cell, auto source, double share) { out[cell] += in[source] * share; });
      return out;
    case Op::subsample_pad:
      each_kept(node, from, rows_, [&](auto kept, auto source) { out[kept] = in[source]; });
      return out;
    case Op::linear: {
      const Values &w = parameters.at(node.name + ".weight"),
                   &b = parameters.at(node.name + ".bias");
      for (std::size_t n = 0; n < rows_; ++n)
        for (std::size_t k = 0; k < node.shape.channels; ++k) {
          double sum = b[k];
          for (std::size_t c = 0; c < from.channels; ++c)
            sum += w[k * from.channels + c] * in[n * from.channels + c];
          out[n * node.shape.channels + k] = sum;
        }
      return out;
    }
    case Op::loss: {
      const std::size_t classes = node.shape.channels;
      double loss = 0;
      for (std::size_t n = 0; n < rows_; ++n) {
        double sum = 0;
        for (std::size_t k = 0; k < classes; ++k) sum += std::exp(in[n * classes + k]);
        for (std::size_t k = 0; k < classes; ++k)
          loss -= wanted(targets_[n], k, classes, label_smoothing) *
                  (in[n * classes + k] - std::log(sum));
      }
      return {loss / static_cast<double>(rows_)};
    }
    case Op::input:
    case Op::receive:
    case Op::send:
      break;
  }
  throw Error("the oracle does not know this node");
}

Oracle::Values Oracle::conv(const Node& node, const Values& in) const {
  const Shape& from = input_shape(node);
  const Values& w = parameters.at(node.name + ".weight");
  Values out(rows_ * node.shape.count());
  for (std::size_t n = 0; n < rows_; ++n)
    each_window(node, from, [&](auto oy, auto ox, auto y, auto x, auto ky, auto kx) {
      each_weight(node, from.channels, ky, kx, [&](auto o, auto i, auto k) {
        out[at(node.shape, n, oy, ox, o)] += in[at(from, n, y, x, i)] * w[k];
      });
    });
  return out;
}

Oracle::Values Oracle::batch_norm(const Node& node, const Values& in) {
  const std::size_t channels = node.shape.channels, count = in.size() / channels;
  Values mean(channels), variance(channels), out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i)
    mean[i % channels] += in[i] / static_cast<double>(count);
  for (std::size_t i = 0; i < in.size(); ++i)
    variance[i % channels] += std::pow(in[i] - mean[i % channels], 2) / static_cast<double>(count);
  const Values &gamma = parameters.at(node.name + ".weight"),
               &beta = parameters.at(node.name + ".bias");
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t c = i % channels;
    out[i] = (in[i] - mean[c]) / std::sqrt(variance[c] + node.epsilon) * gamma[c] + beta[c];
  }
  for (double& v : variance) v *= static_cast<double>(count) / static_cast<double>(count - 1);
  mean_[node.name] = mean;
  variance_[node.name] = variance;
  return out;
}

Oracle::Values Oracle::max_pool(const Node& node, const Values& in) {
  const Shape& from = input_shape(node);
  Values out(rows_ * node.shape.count(), -1e300), second = out;
  for (std::size_t n = 0; n < rows_; ++n)
    each_window(node, from, [&](auto oy, auto ox, auto y, auto x, auto, auto) {
      for (std::size_t c = 0; c < from.channels; ++c) {
        const double v = in[at(from, n, y, x, c)];
        double &best = out[at(node.shape, n, oy, ox, c)],
               &next = second[at(node.shape, n, oy, ox, c)];
        next = std::max(next, std::min(v, best));
        best = std::max(best, v);
      }
    });
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i] > 0)
      margin_ = std::min(margin_,
                         out[i] - second[i]);  // between zeros of a ReLU the choice does not matter
  return out;
}

std::map<std::string, std::vector<double>> Oracle::backward() {
  gradients_.assign(network_.nodes.size(), {});
  parameter_gradients_.clear();
  gradients_.back() = {1.0};
  for (std::size_t i = network_.nodes.size(); i-- > 1;) differentiate(i, gradients_[i]);
  return parameter_gradients_;
}

void Oracle::add_gradient(std::size_t node, const Values& dx) {
  Values& sum = gradients_[node];
  sum.resize(dx.size());
  for (std::size_t i = 0; i < dx.size(); ++i) sum[i] += dx[i];
}

void Oracle::differentiate(std::size_t index, const Values& dy) {
  const Node& node = network_.nodes[index];
  const std::size_t input = node.inputs[0];
  const Values& in = values_[input];
  const Shape& from = input_shape(node);
  Values dx(in.size());
  switch (node.op) {
    case Op::conv:
      dx = conv_backward(node, in, dy);
      break;
    case Op::batch_norm:
      dx = batch_norm_backward(node, in, dy);
      break;
    case Op::linear:
      dx = linear_backward(node, in, dy);
      break;
    case Op::relu:
      for (std::size_t i = 0; i < in.size(); ++i) dx[i] = in[i] > 0 ? dy[i] : 0;
      break;
    case Op::add:
      add_gradient(node.inputs[1], dy);
      dx = dy;
      break;
    case Op::max_pool:
      for (std::size_t n = 0; n < rows_; ++n)
        each_window(node, from, [&](auto oy, auto ox, auto y, auto x, auto, auto) {
          for (std::size_t c = 0; c < from.channels; ++c) {
            const std::size_t o = at(node.shape, n, oy, ox, c);
            if (in[at(from, n, y, x, c)] == values_[index][o] && values_[index][o] > 0)
              dx[at(from, n, y, x, c)] += dy[o];
          }
        });
      break;
    case Op::avg_pool:
    case Op::global_avg_pool:
      each_in_cell(node, from, rows_,
                   [&](auto cell, auto source, double share) { dx[source] += dy[cell] * share; });
      break;
    case Op::subsample_pad:
      each_kept(node, from, rows_, [&](auto kept, auto source) { dx[source] += dy[kept]; });
      break;
    case Op::loss: {
      const std::size_t classes = node.shape.channels;
      for (std::size_t n = 0; n < rows_; ++n) {
        double sum = 0;
        for (std::size_t k = 0; k < classes; ++k) sum += std::exp(in[n * classes + k]);
        for (std::size_t k = 0; k < classes; ++k)
          dx[n * classes + k] = (std::exp(in[n * classes + k]) / sum -
                                 wanted(targets_[n], k, classes, label_smoothing)) /
                                static_cast<double>(rows_);
      }
      break;
    }
    case Op::input:
    case Op::receive:
    case Op::send:
      return;
  }
  add_gradient(input, dx);
}

Oracle::Values Oracle::conv_backward(const Node& node, const Values& in, const Values& dy) {
  const Shape& from = input_shape(node);
  const Values& w = parameters.at(node.name + ".weight");
  Values& dw = parameter_gradients_[node.name + ".weight"];
  dw.resize(w.size());
  Values dx(in.size());
  for (std::size_t n = 0; n < rows_; ++n)
    each_window(node, from, [&](auto oy, auto ox, auto y, auto x, auto ky, auto kx) {
      each_weight(node, from.channels, ky, kx, [&](auto o, auto i, auto k) {
        const double d = dy[at(node.shape, n, oy, ox, o)];
        dw[k] += d * in[at(from, n, y, x, i)];
        dx[at(from, n, y, x, i)] += d * w[k];
      });
    });
  return dx;
}

Oracle::Values Oracle::batch_norm_backward(const Node& node, const Values& in, const Values& dy) {
  const std::size_t channels = node.shape.channels;
  const double count = static_cast<double>(in.size() / channels);
  const Values& gamma = parameters.at(node.name + ".weight");
  const Values& mean = mean_.at(node.name);
  Values deviation(channels), sum(channels), sum_x(channels), dx(in.size());
  for (std::size_t c = 0; c < channels; ++c)
    deviation[c] = std::sqrt(variance_.at(node.name)[c] * (count - 1) / count + node.epsilon);
  const auto normal = [&](std::size_t i) {
    return (in[i] - mean[i % channels]) / deviation[i % channels];
  };
  for (std::size_t i = 0; i < in.size(); ++i) {
    sum[i % channels] += dy[i];
    sum_x[i % channels] += dy[i] * normal(i);
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t c = i % channels;
    dx[i] = gamma[c] / deviation[c] * (dy[i] - sum[c] / count - normal(i) * sum_x[c] / count);
  }
  parameter_gradients_[node.name + ".weight"] = sum_x;
  parameter_gradients_[node.name + ".bias"] = sum;
  return dx;
}

Oracle::Values Oracle::linear_backward(const Node& node, const Values& in, const Values& dy) {
  const std::size_t channels = input_shape(node).channels, classes = node.shape.channels;
  const Values& w = parameters.at(node.name + ".weight");
  Values &dw = parameter_gradients_[node.name + ".weight"],
         &db = parameter_gradients_[node.name + ".bias"];
  dw.resize(w.size());
  db.resize(classes);
  Values dx(in.size());
  for (std::size_t n = 0; n < rows_; ++n)
    for (std::size_t k = 0; k < classes; ++k) {
      const double d = dy[n * classes + k];
      db[k] += d;
      for (std::size_t c = 0; c < channels; ++c) {
        dw[k * channels + c] += d * in[n * channels + c];
        dx[n * channels + c] += d * w[k * channels + c];
      }
    }
  return dx;
}

}  // namespace lockstep::test
