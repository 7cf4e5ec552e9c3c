#include "ports/cpu/units/conv/folded_runner.hpp"

#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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
  std::vector<float> weights(geometry_.weight_count());
  const std::size_t slice = c.parameters.slice_index(geometry_.name + ".weight");
  c.parameters.export_slice(backend::Part::weights, slice, weights);
  const std::size_t of_channel = weights.size() / scale_.size();
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= scale_[i / of_channel];
  reorder(plain_weights(format_), weights.data(), format_, c.at<void>(folded_));
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
