#include "ports/cpu/units/conv/folded_runner.hpp"

#include <fmt/core.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "ports/cpu/units/conv/conv_runner.hpp"
#include "ports/cpu/units/shortcut.hpp"

namespace lockstep::cpu {

namespace {

using dnnl::memory;

/// While it lives, this thread takes denormals for zero.
class DenormalsAreZero {
 public:
  DenormalsAreZero() { _mm_setcsr(before_ | denormals_are_zero | flush_to_zero); }
  ~DenormalsAreZero() { _mm_setcsr(before_); }
  DenormalsAreZero(const DenormalsAreZero&) = delete;
  DenormalsAreZero& operator=(const DenormalsAreZero&) = delete;

 private:
  static constexpr unsigned denormals_are_zero = 0x0040, flush_to_zero = 0x8000;
  unsigned before_ = _mm_getcsr();
};

/// What follows the products: the sum with what is in the destination, and the ReLU. oneDNN's plain
/// ReLU makes 0 of a NaN, which would hide a network that has diverged. Its leaky one keeps it, and
/// with the smallest slope there is, taken for zero (above), it is a ReLU; only minus
/// infinity becomes a NaN.
dnnl::primitive_attr followed_by(bool sum, bool relu) {
  constexpr float least = 1e-45f;
  dnnl::post_ops after;
  if (sum) after.append_sum(1);
  if (relu) after.append_eltwise(1, dnnl::algorithm::eltwise_relu, least, 0);
  dnnl::primitive_attr attributes = user_scratchpad();
  attributes.set_post_ops(after);
  return attributes;
}

memory::desc bias_desc(const ConvGeometry& g) {
  return {
      {static_cast<memory::dim>(g.out_channels)}, memory::data_type::f32, memory::format_tag::a};
}

dnnl::convolution_forward::primitive_desc folded_desc(const ConvGeometry& g,
                                                      const memory::desc& weights, std::size_t rows,
                                                      const dnnl::primitive_attr& attributes) {
  const auto dim = [](std::size_t n) { return static_cast<memory::dim>(n); };
  const memory::dims stride{dim(g.stride), dim(g.stride)}, padding{dim(g.padding), dim(g.padding)};
  try {
    return {{dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
             g.source(rows), weights, bias_desc(g), g.destination(rows), stride, padding, padding},
            attributes,
            engine()};
  } catch (const dnnl::error& error) {
    throw Error(fmt::format("oneDNN has no implementation of {} for {} rows of evaluation: {}",
                            g.name, rows, error.what()));
  }
}

void reorder(const memory& from, const memory& to) {
  dnnl::stream stream(engine());
  dnnl::reorder(from, to).execute(stream, const_cast<memory&>(from), const_cast<memory&>(to));
  stream.wait();
}

}  // namespace

FoldedRunner::FoldedRunner(Context& context, std::size_t number, Image& image)
    : Runner(context, number), image_(image) {}

void FoldedRunner::plan() {
  geometry_ = ConvGeometry::of(c.network, unit.node, c.storage);
  stripe_ = geometry_.stripe(c.regions[unit.level].stripes);
  const ConvFormats& arena = c.parameters.formats(unit.node);
  if (unit.relu && WinogradConv::fits(stripe_, arena)) {
    winograd_ = WinogradConv(stripe_);
    by_winograd_ = c.spec.winograd.passes(WinogradConv::shape(stripe_)).forward;
  }
  weights_ = c.parameters.find(backend::Part::weights, geometry_.name + ".weight");
  scale_.resize(geometry_.out_channels);
  shift_.resize(geometry_.out_channels);
  if (!unit.input) image_.plan(unit.level);
  if (!by_winograd_) return plan_direct();
  folded_ = c.lasting_buffer(winograd_.weight_bytes(), unit.level);
  if (unit.skip) product_ = c.scratch(unit.level, geometry_.destination_bytes());
  c.library_scratch =
      std::max(c.library_scratch, winograd_.scratch_bytes(c.regions[unit.level].chunk_stripes));
}

void FoldedRunner::plan_direct() {
  const dnnl::primitive_attr attributes = followed_by(unit.skip.has_value(), unit.relu);
  const memory::desc any(geometry_.weight_dims(), geometry_.source(1).data_type(),
                         memory::format_tag::any);
  const Region& region = c.regions[unit.level];
  format_ = folded_desc(stripe_, any, region.chunk_stripes, attributes).weights_desc();
  for (const std::size_t count : chunk_sizes(region)) {
    const auto desc = folded_desc(stripe_, format_, count, attributes);
    c.library_scratch = std::max(c.library_scratch, desc.scratchpad_desc().get_size());
    prepared_[count].primitive = dnnl::convolution_forward(desc);
  }
  folded_ = c.lasting_buffer(format_.get_size(), unit.level);
}

void FoldedRunner::bind() {
  for (auto& [count, prepared] : prepared_)
    for (std::size_t lane = 0; lane < c.lanes; ++lane)
      prepared.arguments.push_back(
          {{DNNL_ARG_SRC, memory(stripe_.source(count), engine(), nullptr)},
           {DNNL_ARG_WEIGHTS, memory(format_, engine(), nullptr)},
           {DNNL_ARG_BIAS, memory(bias_desc(stripe_), engine(), shift_.data())},
           {DNNL_ARG_DST, memory(stripe_.destination(count), engine(), nullptr)},
           {DNNL_ARG_SCRATCHPAD, library_scratch(c, lane)}});
}

void FoldedRunner::fold() {
  find_norm();
  if (by_winograd_)
    winograd_.transform_forward(weights_, 0, 1, c.at<void>(folded_));
  else
    fold_weights();
}

void FoldedRunner::find_norm() {
  const nn::Node& norm = c.network.nodes[unit.bn];
  const auto part = [&](const char* name) {
    return c.parameters.find(backend::Part::weights, norm.name + name);
  };
  const float *gamma = part(".weight"), *beta = part(".bias"), *mean = part(".running_mean"),
              *variance = part(".running_var");
  for (std::size_t i = 0; i < scale_.size(); ++i) {
    const double deviation = std::sqrt(static_cast<double>(variance[i]) + norm.epsilon);
    scale_[i] = gamma[i] * static_cast<float>(1 / deviation);
    shift_[i] = beta[i] - mean[i] * scale_[i];
  }
}

void FoldedRunner::fold_weights() {
  const memory::desc& arena = c.parameters.formats(unit.node).gradient;
  const memory::desc plain(geometry_.weight_dims(), memory::data_type::f32,
                           memory::format_tag::oihw);
  std::vector<float> weights(geometry_.weight_count());
  const memory between(plain, engine(), weights.data());
  reorder(memory(arena, engine(), weights_), between);
  const std::size_t of_channel = weights.size() / scale_.size();
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= scale_[i / of_channel];
  reorder(between, memory(format_, engine(), c.at<void>(folded_)));
}

const std::byte* FoldedRunner::input(const Chunk& chunk) {
  return unit.input ? c.runners[*unit.input]->value(chunk) : image_.value(chunk);
}

void FoldedRunner::forward(const Chunk& chunk) {
  if (by_winograd_)
    forward_by_winograd(chunk);
  else
    forward_direct(chunk);
}

/// Writes the skip to the place of the sum, unless it is there.
void FoldedRunner::bring_skip(const Chunk& chunk) {
  if (!unit.skip || unit.in_place) return;
  const std::byte* skip = c.runners[*unit.skip]->value(chunk);
  if (unit.pad)
    Shortcut(c, unit, chunk).pad(skip, output(chunk));
  else
    std::memcpy(output(chunk), skip, chunk.share(geometry_.destination_bytes()));
}

void FoldedRunner::forward_direct(const Chunk& chunk) {
  bring_skip(chunk);
  Prepared& p = prepared_.at(chunk.count);
  auto& arguments = p.arguments[chunk.lane];
  arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<std::byte*>(input(chunk)));
  arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(c.at<void>(folded_));
  arguments.at(DNNL_ARG_DST).set_data_handle(output(chunk));
  const DenormalsAreZero during_the_convolution;
  p.primitive.execute(c.streams[chunk.lane], arguments);
}

void FoldedRunner::forward_by_winograd(const Chunk& chunk) {
  bring_skip(chunk);
  std::byte* product = unit.skip ? c.lane_at(chunk.lane, product_) : output(chunk);
  winograd_.forward(chunk.count, input(chunk), weights_, c.at<void>(folded_), product,
                    c.lane_library_scratch[chunk.lane].data());
  const std::byte* skip = unit.skip ? output(chunk) : nullptr;
  c.kernels.point_forward(
      {product, scale_.data(), shift_.data(), skip, nullptr, nullptr, output(chunk)},
      chunk.share(geometry_.out_height * geometry_.out_width), geometry_.out_channels);
}

}  // namespace lockstep::cpu
