#include "tests/support/networks/onnx_run.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "tests/support/harness/wire_reader.hpp"

namespace lockstep::test {
namespace {

using Sizes = std::vector<std::size_t>;

std::size_t count(const Sizes& shape) {
  std::size_t all = 1;
  for (const std::size_t one : shape) all *= one;
  return all;
}

OnnxValue constant(const WireReader& tensor) {
  OnnxValue value;
  for (const auto& dimension : tensor.all(1)) value.shape.push_back(dimension.value);
  constexpr std::uint64_t real32 = 1, real64 = 11;  // the others are int64
  const std::uint64_t type = tensor.number(2);
  const std::size_t bytes = type == real32 ? 4 : 8;
  std::string raw = tensor.text(9);
  for (std::string_view rest = raw; !rest.empty();) {
    const std::uint64_t bits = WireReader::little_endian(WireReader::cut(rest, bytes));
    value.values.push_back(type == real32   ? std::bit_cast<float>(static_cast<std::uint32_t>(bits))
                           : type == real64 ? std::bit_cast<double>(bits)
                                            : static_cast<double>(static_cast<std::int64_t>(bits)));
  }
  if (value.values.size() != count(value.shape)) throw std::runtime_error("a constant's size");
  return value;
}

/// One node, with its inputs.
struct OnnxNode {
  WireReader message;
  std::vector<OnnxValue> in;

  bool has(const std::string& name) const {
    const std::vector<WireReader> all = message.messages(5);
    return std::ranges::any_of(all, [&](const WireReader& one) { return one.text(1) == name; });
  }
  WireReader attribute(const std::string& name) const {
    for (const WireReader& one : message.messages(5))
      if (one.text(1) == name) return one;
    throw std::runtime_error(message.text(3) + " has no " + name);
  }
  Sizes wholes(const std::string& name) const {
    Sizes values;
    for (const auto& field : attribute(name).all(8)) values.push_back(field.value);
    return values;
  }
  std::size_t whole(std::size_t input, std::size_t at) const {
    return static_cast<std::size_t>(in[input].values.at(at));
  }
};

/// A value [rows, channels, height, width] whose numbers `make` gives.
OnnxValue image(
    const Sizes& shape,
    const std::function<double(std::size_t, std::size_t, std::size_t, std::size_t)>& make) {
  OnnxValue out{shape, {}};
  for (std::size_t n = 0; n < shape[0]; ++n)
    for (std::size_t c = 0; c < shape[1]; ++c)
      for (std::size_t h = 0; h < shape[2]; ++h)
        for (std::size_t w = 0; w < shape[3]; ++w) out.values.push_back(make(n, c, h, w));
  return out;
}

double at(const OnnxValue& x, std::size_t n, std::size_t c, std::size_t h, std::size_t w) {
  return x.values[((n * x.shape[1] + c) * x.shape[2] + h) * x.shape[3] + w];
}

/// Calls `visit` with each place of a window that is inside of the image.
template <class Visit>
void in_window(const OnnxNode& node, std::size_t h, std::size_t w, Visit&& visit) {
  const Sizes kernel = node.wholes("kernel_shape"), strides = node.wholes("strides"),
              pads = node.wholes("pads");
  for (std::size_t kh = 0; kh < kernel[0]; ++kh)
    for (std::size_t kw = 0; kw < kernel[1]; ++kw) {
      const std::size_t y = h * strides[0] + kh, x = w * strides[1] + kw;
      if (y >= pads[0] && x >= pads[1] && y - pads[0] < node.in[0].shape[2] &&
          x - pads[1] < node.in[0].shape[3])
        visit(kh, kw, y - pads[0], x - pads[1]);
    }
}

Sizes windowed(const OnnxNode& node, std::size_t channels) {
  const Sizes kernel = node.wholes("kernel_shape"), strides = node.wholes("strides"),
              pads = node.wholes("pads"), &in = node.in[0].shape;
  return {in[0], channels, (in[2] + pads[0] + pads[2] - kernel[0]) / strides[0] + 1,
          (in[3] + pads[1] + pads[3] - kernel[1]) / strides[1] + 1};
}

OnnxValue conv(const OnnxNode& node) {
  const OnnxValue &x = node.in[0], &kernels = node.in[1];
  const std::size_t groups = node.has("group") ? node.attribute("group").number(3) : 1;
  const std::size_t ins = x.shape[1] / groups, outs = kernels.shape[0] / groups;
  if (kernels.shape[1] != ins) throw std::runtime_error("weights of other groups");
  return image(windowed(node, kernels.shape[0]), [&](auto n, auto c, auto h, auto w) {
    double sum = node.in.size() > 2 ? node.in[2].values[c] : 0;
    for (std::size_t k = 0; k < ins; ++k)
      in_window(node, h, w, [&](auto kh, auto kw, auto y, auto z) {
        sum += at(kernels, c, k, kh, kw) * at(x, n, c / outs * ins + k, y, z);
      });
    return sum;
  });
}

OnnxValue max_pool(const OnnxNode& node) {
  return image(windowed(node, node.in[0].shape[1]), [&](auto n, auto c, auto h, auto w) {
    double most = -std::numeric_limits<double>::infinity();
    in_window(node, h, w, [&](auto, auto, auto y, auto x) {
      most = std::max(most, at(node.in[0], n, c, y, x));
    });
    return most;
  });
}

OnnxValue average_pool(const OnnxNode& node) {
  return image(windowed(node, node.in[0].shape[1]), [&](auto n, auto c, auto h, auto w) {
    double sum = 0, pixels = 0;
    in_window(node, h, w, [&](auto, auto, auto y, auto x) {
      sum += at(node.in[0], n, c, y, x);
      ++pixels;
    });
    return sum / pixels;
  });
}

OnnxValue batch_norm(const OnnxNode& node) {
  const auto of = [&](std::size_t input, std::size_t c) { return node.in[input].values[c]; };
  const double epsilon = node.attribute("epsilon").real32(2);
  return image(node.in[0].shape, [&](auto n, auto c, auto h, auto w) {
    return (at(node.in[0], n, c, h, w) - of(3, c)) / std::sqrt(of(4, c) + epsilon) * of(1, c) +
           of(2, c);
  });
}

/// Of the same shape, or [1, channels, 1, 1].
OnnxValue each(OnnxValue x, const std::function<double(double)>& of) {
  for (double& value : x.values) value = of(value);
  return x;
}

/// The second may have one number for each channel, or in all.
OnnxValue pairwise(const OnnxNode& node, const std::function<double(double, double)>& of) {
  const OnnxValue &a = node.in[0], &b = node.in[1];
  const std::size_t channels = a.shape.at(1), inside = count(a.shape) / a.shape[0] / channels;
  const bool same = a.shape == b.shape, one = b.shape == Sizes{1};
  if (!same && !one &&
      b.shape != (a.shape.size() == 2 ? Sizes{channels} : Sizes{1, channels, 1, 1}))
    throw std::runtime_error("other shapes");
  OnnxValue out = a;
  for (std::size_t i = 0; i < out.values.size(); ++i)
    out.values[i] = of(a.values[i], b.values[same ? i : one ? 0 : i / inside % channels]);
  return out;
}

OnnxValue where(const OnnxNode& node) {
  OnnxValue out = node.in[2];
  if (node.in[0].shape != out.shape || node.in[1].shape != Sizes{1})
    throw std::runtime_error("Where of another form");
  for (std::size_t i = 0; i < out.values.size(); ++i)
    if (node.in[0].values[i] != 0) out.values[i] = node.in[1].values[0];
  return out;
}

OnnxValue slice(const OnnxNode& node) {
  const Sizes& in = node.in[0].shape;
  if (node.in[3].values != std::vector<double>{2, 3}) throw std::runtime_error("other axes");
  Sizes shape = in;
  for (std::size_t i = 0; i < 2; ++i)
    shape[2 + i] =
        (std::min(node.whole(2, i), in[2 + i]) - node.whole(1, i) + node.whole(4, i) - 1) /
        node.whole(4, i);
  return image(shape, [&](auto n, auto c, auto h, auto w) {
    return at(node.in[0], n, c, node.whole(1, 0) + h * node.whole(4, 0),
              node.whole(1, 1) + w * node.whole(4, 1));
  });
}

OnnxValue pad(const OnnxNode& node) {
  Sizes shape = node.in[0].shape;
  const std::size_t channels = shape[1], before = node.whole(1, 1);
  for (std::size_t i = 0; i < 4; ++i) shape[i] += node.whole(1, i) + node.whole(1, 4 + i);
  return image(shape, [&](auto n, auto c, auto h, auto w) {
    return c >= before && c - before < channels ? at(node.in[0], n, c - before, h, w) : 0.0;
  });
}

OnnxValue transpose(const OnnxNode& node) {
  const Sizes perm = node.wholes("perm"), &in = node.in[0].shape;
  return image({in[perm[0]], in[perm[1]], in[perm[2]], in[perm[3]]}, [&](auto... index) {
    const Sizes to = {index...};
    Sizes from(4);
    for (std::size_t i = 0; i < 4; ++i) from[perm[i]] = to[i];
    return at(node.in[0], from[0], from[1], from[2], from[3]);
  });
}

OnnxValue pooled(const OnnxNode& node) {
  const Sizes& in = node.in[0].shape;
  return image({in[0], in[1], 1, 1}, [&](auto n, auto c, auto, auto) {
    double sum = 0;
    for (std::size_t h = 0; h < in[2]; ++h)
      for (std::size_t w = 0; w < in[3]; ++w) sum += at(node.in[0], n, c, h, w);
    return sum / static_cast<double>(in[2] * in[3]);
  });
}

OnnxValue gemm(const OnnxNode& node) {
  if (node.attribute("transB").number(3) != 1) throw std::runtime_error("Gemm of another form");
  const OnnxValue &x = node.in[0], &weights = node.in[1];
  OnnxValue out{{x.shape[0], weights.shape[0]}, {}};
  for (std::size_t n = 0; n < x.shape[0]; ++n)
    for (std::size_t k = 0; k < weights.shape[0]; ++k) {
      double sum = node.in.size() > 2 ? node.in[2].values[k] : 0;
      for (std::size_t c = 0; c < x.shape[1]; ++c)
        sum += x.values[n * x.shape[1] + c] * weights.values[k * x.shape[1] + c];
      out.values.push_back(sum);
    }
  return out;
}

OnnxValue softmax(const OnnxNode& node) {
  if (node.attribute("axis").number(3) != 1) throw std::runtime_error("Softmax of another form");
  OnnxValue out = node.in[0];
  const std::size_t classes = out.shape[1];
  for (std::size_t n = 0; n < out.shape[0]; ++n) {
    double sum = 0;
    for (std::size_t k = 0; k < classes; ++k)
      sum += out.values[n * classes + k] = std::exp(out.values[n * classes + k]);
    for (std::size_t k = 0; k < classes; ++k) out.values[n * classes + k] /= sum;
  }
  return out;
}

OnnxValue run(const OnnxNode& node) {
  const std::string op = node.message.text(4);
  const OnnxValue& x = node.in.at(0);
  if (op == "Cast") return x;
  if (op == "Sub") return pairwise(node, std::minus<>());
  if (op == "Equal") return pairwise(node, std::equal_to<>());
  if (op == "Or") return pairwise(node, std::logical_or<>());
  if (op == "IsNaN") return each(x, [](double v) { return std::isnan(v) ? 1. : 0.; });
  if (op == "Sigmoid") return each(x, [](double v) { return 1 / (1 + std::exp(-v)); });
  if (op == "Where") return where(node);
  if (op == "Transpose") return transpose(node);
  if (op == "Mul") return pairwise(node, std::multiplies<>());
  if (op == "Add") return pairwise(node, std::plus<>());
  if (op == "Conv") return conv(node);
  if (op == "BatchNormalization") return batch_norm(node);
  if (op == "Relu") return image(x.shape, [&](auto... i) { return std::max(at(x, i...), 0.0); });
  if (op == "MaxPool") return max_pool(node);
  if (op == "AveragePool") return average_pool(node);
  if (op == "Slice") return slice(node);
  if (op == "Pad") return pad(node);
  if (op == "GlobalAveragePool") return pooled(node);
  if (op == "Flatten") return {{x.shape[0], count(x.shape) / x.shape[0]}, x.values};
  if (op == "Gemm") return gemm(node);
  if (op == "Softmax") return softmax(node);
  throw std::runtime_error("the operator " + op);
}

}  // namespace

std::map<std::string, OnnxValue> onnx_constants(const std::string& file) {
  std::map<std::string, OnnxValue> values;
  for (const WireReader& tensor : WireReader(file).message(7).messages(5))
    if (!values.emplace(tensor.text(8), constant(tensor)).second)
      throw std::runtime_error("two constants named " + tensor.text(8));
  return values;
}

std::map<std::string, OnnxValue> run_onnx(const std::string& file, const OnnxValue& images) {
  const WireReader graph = WireReader(file).message(7);
  std::map<std::string, OnnxValue> values = onnx_constants(file);
  values[graph.message(11).text(1)] = images;
  for (const WireReader& message : graph.messages(1)) {
    OnnxNode node{message, {}};
    for (const auto& input : message.all(1)) node.in.push_back(values.at(input.bytes));
    if (!values.emplace(message.text(2), run(node)).second)
      throw std::runtime_error("two values named " + message.text(2));
  }
  return values;
}

}  // namespace lockstep::test
