#pragma once

// A convolution as a graph of cuDNN: its tensors, and what is fused with it.

// With this name defined the graph API opens libcuda and libcudart itself when a device is used.
// Otherwise the program would need libcuda.so.1 just to start.

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "ports/cuda/plan/engines/conv_engines.hpp"

namespace lockstep::cuda {

/// The graph's numbers for its tensors.
enum Operand : std::int64_t {
  operand_x = 1,
  operand_w,
  operand_y,
  operand_scale,
  operand_shift,
  operand_mean,
  operand_inverse_deviation,
  operand_gamma,
  operand_beta,
  operand_sum,
  operand_square_sum,
  operand_g,              // a fused data gradient reads x and writes this
  operand_gradient_sums,  // and gradient_sum_arrays - 1 more
};
inline Operand gradient_sum(std::size_t i) {
  return static_cast<Operand>(operand_gradient_sums + static_cast<std::int64_t>(i));
}

using Places = std::unordered_map<std::int64_t, void*>;

/// The memory of each tensor of a plan's graph.
inline Places places_of(const ConvOperands& operands, Pass pass, const ConvFusion& fusion,
                        std::size_t channels) {
  const NormOperands& norm = operands.norm;
  Places places;
  const auto put = [&](Operand operand, const void* at) {
    places[operand] = const_cast<void*>(at);
  };
  put(operand_x, operands.x);
  put(operand_w, operands.w);
  put(operand_y, operands.y);
  if (pass == Pass::forward && fusion.sums) {
    put(operand_sum, norm.sum);
    put(operand_square_sum, norm.square_sum);
  }
  if (fusion.normalised) {
    put(operand_scale, norm.scale);
    put(operand_shift, norm.shift);
  }
  if (!fusion.norm_gradient) return places;
  put(operand_g, norm.g);
  put(operand_mean, norm.mean);
  put(operand_inverse_deviation, norm.inverse_deviation);
  put(operand_gamma, norm.gamma);
  put(operand_beta, norm.beta);
  for (std::size_t i = 0; i < gradient_sum_arrays; ++i)
    put(gradient_sum(i), norm.gradient_sums + i * channels);
  return places;
}

}  // namespace lockstep::cuda

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING 1
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // it would double the time to compile this file
#include <cudnn_frontend.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::cuda {

namespace fe = cudnn_frontend;

inline fe::DataType_t element_of(backend::Precision precision) {
  switch (precision) {
    case backend::Precision::fp32:
    case backend::Precision::tf32:
      return fe::DataType_t::FLOAT;
    case backend::Precision::bf16:
      return fe::DataType_t::BFLOAT16;
    case backend::Precision::fp16:
      return fe::DataType_t::HALF;
  }
  throw Error("a precision without a type");
}

/// NHWC in memory; cuDNN lists dimensions as N, C, H, W always.
inline fe::graph::Tensor_attributes tensor(Operand operand, fe::DataType_t type, std::size_t n,
                                           std::size_t c, std::size_t h, std::size_t w) {
  const auto dim = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  fe::graph::Tensor_attributes attributes;
  attributes.set_uid(operand)
      .set_data_type(type)
      .set_dim({dim(n), dim(c), dim(h), dim(w)})
      .set_stride({dim(c * h * w), 1, dim(c * w), dim(c)});
  return attributes;
}

/// Writes one request into a graph.
class ConvGraph {
 public:
  ConvGraph(fe::graph::Graph& graph, const ConvRequest& request)
      : graph_(graph),
        fusion_(request.fusion),
        s_(request.shape),
        type_(element_of(request.precision)) {}

  void add(Pass pass) {
    switch (pass) {
      case Pass::forward:
        return forward();
      case Pass::data_gradient:
        return data_gradient();
      case Pass::weight_gradient:
        return output(graph_.conv_wgrad(input(operand_y), normalised_x(),
                                        window<fe::graph::Conv_wgrad_attributes>()),
                      shape_of(operand_w));
    }
  }

 private:
  using Attributes = fe::graph::Tensor_attributes;
  using Tensor = std::shared_ptr<Attributes>;

  void forward() {
    const Tensor y = graph_.conv_fprop(normalised_x(), input(operand_w),
                                       window<fe::graph::Conv_fprop_attributes>());
    output(y, shape_of(operand_y));
    if (!fusion_.sums) return;
    fe::graph::Genstats_attributes statistics;
    statistics.set_compute_data_type(fe::DataType_t::FLOAT);
    const auto [sum, square_sum] = graph_.genstats(y, statistics);
    output(sum, channels(operand_sum, s_.outputs, fe::DataType_t::FLOAT));
    output(square_sum, channels(operand_square_sum, s_.outputs, fe::DataType_t::FLOAT));
  }

  void data_gradient() {
    const Tensor dx = graph_.conv_dgrad(input(operand_y), input(operand_w),
                                        window<fe::graph::Conv_dgrad_attributes>());
    if (!fusion_.norm_gradient) return output(dx, shape_of(operand_x));
    dx->set_dim(shape_of(operand_x).get_dim()).set_stride(shape_of(operand_x).get_stride());
    const auto of_norm = [&](Operand operand) {
      return graph_.tensor(channels(operand, s_.channels, fe::DataType_t::FLOAT));
    };
    const Tensor x = input(operand_x), mean = of_norm(operand_mean),
                 inverse = of_norm(operand_inverse_deviation), gamma = of_norm(operand_gamma);
    using Mode = fe::PointwiseMode_t;
    const Tensor centred = pointwise(Mode::SUB, x, mean);
    const Tensor normalised = pointwise(Mode::MUL, centred, inverse);
    const Tensor scaled = pointwise(Mode::MUL, normalised, gamma);
    const Tensor before_relu = pointwise(Mode::ADD, scaled, of_norm(operand_beta));
    const Tensor g = pointwise(Mode::RELU_BWD, dx, before_relu);
    Attributes kept = shape_of(operand_x);
    output(g, kept.set_uid(operand_g));
    const auto sums = graph_.dbn_weight(g, x, mean, inverse, gamma, {});
    for (std::size_t i = 0; i < sums.size(); ++i)
      output(sums[i], channels(gradient_sum(i), s_.channels, fe::DataType_t::FLOAT));
  }

  /// x, or its value after the batch norm and the ReLU.
  Tensor normalised_x() {
    Tensor x = input(operand_x);
    if (!fusion_.normalised) return x;
    using Mode = fe::PointwiseMode_t;
    const auto of_norm = [&](Operand operand) {
      return graph_.tensor(channels(operand, s_.channels, type_));
    };
    const Tensor scaled = pointwise(Mode::MUL, x, of_norm(operand_scale));
    const Tensor shifted = pointwise(Mode::ADD, scaled, of_norm(operand_shift));
    return graph_.pointwise(shifted, mode(Mode::RELU_FWD));
  }

  static fe::graph::Pointwise_attributes mode(fe::PointwiseMode_t which) {
    fe::graph::Pointwise_attributes attributes;
    attributes.set_mode(which).set_compute_data_type(fe::DataType_t::FLOAT);
    return attributes;
  }
  Tensor pointwise(fe::PointwiseMode_t which, const Tensor& a, const Tensor& b) {
    return graph_.pointwise(a, b, mode(which));
  }

  Attributes shape_of(Operand operand) const {
    if (operand == operand_w)
      return tensor(operand, type_, s_.outputs, s_.group_channels(), s_.kernel_height,
                    s_.kernel_width);  // cuDNN takes the number of groups from it
    return operand == operand_x
               ? tensor(operand, type_, s_.batch, s_.channels, s_.height, s_.width)
               : tensor(operand, type_, s_.batch, s_.outputs, s_.out_height, s_.out_width);
  }
  static Attributes channels(Operand operand, std::size_t count, fe::DataType_t type) {
    return tensor(operand, type, 1, count, 1, 1);
  }

  Tensor input(Operand operand) { return graph_.tensor(shape_of(operand)); }
  static void output(const Tensor& made, const Attributes& like) {
    made->set_output(true).set_uid(like.get_uid()).set_data_type(like.get_data_type());
    made->set_dim(like.get_dim()).set_stride(like.get_stride());
  }

  /// The same for all three passes.
  template <class Window>
  Window window() const {
    const auto pair = [](std::size_t n) { return std::vector<std::int64_t>(2, std::int64_t(n)); };
    Window attributes;
    attributes.set_compute_data_type(fe::DataType_t::FLOAT)
        .set_padding(pair(s_.padding))
        .set_stride(pair(s_.stride))
        .set_dilation(pair(1));
    return attributes;
  }

  fe::graph::Graph& graph_;
  const ConvFusion fusion_;
  const ConvShape& s_;
  const fe::DataType_t type_;
};

}  // namespace lockstep::cuda
