#include "ports/cpu/units/conv/conv_runner.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "ports/cpu/units/point_runner.hpp"

namespace lockstep::cpu {

ConvRunner::ConvRunner(Context& context, std::size_t number, Image& image)
    : Runner(context, number), image_(image) {}

void ConvRunner::plan() {
  geometry_ = ConvGeometry::of(c.network, unit.node, c.storage);
  stripe_ = geometry_.stripe(c.regions[unit.level].stripes);
  formats_ = ConvFormats::choose(stripe_);  // a stripe may prefer other formats than a whole image
  formats_.gradient = c.parameters.formats(unit.node).gradient;
  if (WinogradConv::fits(stripe_, formats_)) {
    winograd_ = WinogradConv(stripe_);
    by_winograd_ = c.spec.winograd.passes(WinogradConv::shape(stripe_));
  }
  if (!by_winograd_.weight_gradient) tap_gradient_ = tap_gradient_of(stripe_, formats_);
  const std::string weight = geometry_.name + ".weight";
  weights_ = c.parameters.find(backend::Part::weights, weight);
  gradient_ = c.parameters.find(backend::Part::gradients, weight);
  gradient_size_ = formats_.gradient.get_size() / sizeof(float);
  if (unit.input && !c.units[*unit.input].in_region)
    inline_input_ = static_cast<PointRunner*>(c.runners[*unit.input]);

  const std::size_t reader = c.units[unit.readers[0]].level;
  norm.plan(c, unit.bn, unit.level, reader);
  x_ = c.value_buffer(geometry_.destination_bytes() * c.spec.batch, index);
  copy_forward_ = !by_winograd_.forward && formats_.forward != formats_.gradient;
  if (by_winograd_.forward)
    forward_weights_ = c.forward_buffer(winograd_.weight_bytes(), unit.level);
  if (copy_forward_) {
    forward_weights_ = c.forward_buffer(formats_.forward.get_size(), unit.level);
    to_forward_ = WeightReorder(formats_.gradient, formats_.forward, c.lanes);
  }
  if (!unit.input) image_.plan(unit.level);
  plan_backward();
  for (const std::size_t count : chunk_sizes(c.regions[unit.level]))
    prepared_.emplace(count, prepare(count));
}

void ConvRunner::plan_backward() {
  const std::size_t r = unit.level;
  for (std::size_t lane = 1; lane < c.lanes; ++lane)
    partials_.push_back(c.backward_buffer(gradient_size_ * sizeof(float), r, r));
  if (!by_winograd_.weight_gradient && !tap_gradient_)
    chunk_gradient_ = c.fixed_scratch(unit.level, gradient_size_ * sizeof(float));
  dx_ = c.scratch(unit.level, geometry_.destination_bytes());
  if (!unit.differentiates) return;
  if (by_winograd_.data_gradient) {
    backward_weights_ = c.backward_buffer(winograd_.weight_bytes(), r, r);
  } else {
    backward_weights_ = c.backward_buffer(formats_.backward_data.get_size(), r, r);
    to_backward_ = WeightReorder(formats_.gradient, formats_.backward_data, c.lanes);
  }
  if (!inline_input_) dinput_ = c.scratch(unit.level, geometry_.source_bytes());
}

ConvRunner::Prepared ConvRunner::prepare(std::size_t count) {
  Prepared result;
  backend::WinogradPasses without = by_winograd_;
  if (tap_gradient_) without.weight_gradient = true;
  result.primitives = make_conv(stripe_, formats_, count, unit.differentiates, without);
  c.library_scratch = std::max(c.library_scratch, result.primitives.scratch_bytes);
  if (by_winograd_.any())
    c.library_scratch = std::max(c.library_scratch, winograd_.scratch_bytes(count));
  if (tap_gradient_)
    c.library_scratch = std::max(c.library_scratch, tap_scratch_bytes(stripe_.taps()));
  return result;
}

dnnl::memory library_scratch(const Context& c, std::size_t lane) {
  const auto bytes = static_cast<dnnl::memory::dim>(c.library_scratch);
  return {{{bytes}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a},
          engine(),
          c.lane_library_scratch[lane].data()};
}

void ConvRunner::bind() {
  for (auto& [count, prepared] : prepared_) {
    prepared.forward.resize(c.lanes);
    prepared.backward_data.resize(c.lanes);
    prepared.backward_weights.resize(c.lanes);
    for (std::size_t lane = 0; lane < c.lanes; ++lane) bind_lane(prepared, lane, count);
  }
}

void ConvRunner::bind_lane(Prepared& p, std::size_t lane, std::size_t count) {
  using dnnl::memory;
  const auto fixed = [](const memory::desc& desc, void* data) {
    return memory(desc, engine(), data);
  };
  const memory source(stripe_.source(count), engine(), nullptr);
  const memory destination(stripe_.destination(count), engine(), nullptr);
  const memory scratch = library_scratch(c, lane);
  p.forward[lane] = {{DNNL_ARG_SRC, source},
                     {DNNL_ARG_WEIGHTS, fixed(formats_.forward, weights_)},
                     {DNNL_ARG_DST, destination},
                     {DNNL_ARG_SCRATCHPAD, scratch}};
  p.backward_weights[lane] = {{DNNL_ARG_SRC, source},
                              {DNNL_ARG_DIFF_WEIGHTS, memory(formats_.gradient, engine(), nullptr)},
                              {DNNL_ARG_DIFF_DST, destination},
                              {DNNL_ARG_SCRATCHPAD, scratch}};
  if (!unit.differentiates) return;
  p.backward_data[lane] = {
      {DNNL_ARG_DIFF_SRC, memory(stripe_.source(count), engine(), nullptr)},
      {DNNL_ARG_WEIGHTS, fixed(formats_.backward_data, c.at<void>(backward_weights_))},
      {DNNL_ARG_DIFF_DST, destination},
      {DNNL_ARG_SCRATCHPAD, scratch}};
}

const std::byte* ConvRunner::input(const Chunk& chunk) {
  return unit.input ? c.runners[*unit.input]->value(chunk) : image_.value(chunk);
}

void ConvRunner::before_forward(std::size_t lane) {
  if (inline_input_) inline_input_->before_forward(lane);
  before_again(lane);
}

void ConvRunner::before_again(std::size_t lane) {
  if (by_winograd_.forward)
    winograd_.transform_forward(weights_, lane, c.lanes, c.at<void>(forward_weights_));
  if (copy_forward_)
    to_forward_.run(weights_, c.at<void>(forward_weights_), lane, c.lanes, c.streams[lane]);
}

void ConvRunner::forward_again(const Chunk& chunk) {
  if (by_winograd_.forward)
    return winograd_.forward(chunk.count, input(chunk), weights_, c.at<void>(forward_weights_),
                             output(chunk), scratch(chunk));
  Prepared& p = prepared(chunk);
  auto& arguments = p.forward[chunk.lane];
  arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<std::byte*>(input(chunk)));
  arguments.at(DNNL_ARG_DST).set_data_handle(output(chunk));
  if (copy_forward_) arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(c.at<void>(forward_weights_));
  p.primitives.forward.execute(c.streams[chunk.lane], arguments);
}

void ConvRunner::forward(const Chunk& chunk) {
  forward_again(chunk);
  double* sums = norm.sums(chunk.index);
  c.kernels.statistics(output(chunk), chunk.share(geometry_.out_height * geometry_.out_width),
                       geometry_.out_channels, norm.pivot(), sums, sums + geometry_.out_channels);
}

void ConvRunner::before_backward(std::size_t lane, bool accumulate) {
  if (lane == 0) accumulate_ = accumulate;
  const Range range = part(geometry_.out_channels, lane);
  norm.differentiate(range.begin, range.end, accumulate);
  if (!unit.differentiates) return;
  void* weights = c.at<void>(backward_weights_);
  if (by_winograd_.data_gradient)
    winograd_.transform_backward(weights_, lane, c.lanes, weights);
  else
    to_backward_.run(weights_, weights, lane, c.lanes, c.streams[lane]);
}

float* ConvRunner::partial(std::size_t lane) const {
  return lane == 0 ? gradient_ : c.at<float>(partials_[lane - 1]);
}

void ConvRunner::backward(const Chunk& chunk) {
  const std::size_t values = chunk.share(geometry_.out_height * geometry_.out_width);
  std::byte* dx = c.lane_at(chunk.lane, dx_);
  const PointRunner& reader = static_cast<PointRunner&>(*c.runners[unit.readers[0]]);
  c.kernels.norm_backward(
      {reader.gradient(chunk), output(chunk), norm.mean(), norm.a(), norm.b(), norm.c(), dx},
      values, geometry_.out_channels);
  weight_gradient(chunk, dx);
  if (!unit.differentiates) return;
  if (by_winograd_.data_gradient) {
    winograd_.data_gradient(chunk.count, dx, weights_, c.at<void>(backward_weights_),
                            data_gradient(chunk), scratch(chunk));
  } else {
    Prepared& p = prepared(chunk);
    auto& arguments = p.backward_data[chunk.lane];
    arguments.at(DNNL_ARG_DIFF_DST).set_data_handle(dx);
    arguments.at(DNNL_ARG_DIFF_SRC).set_data_handle(data_gradient(chunk));
    p.primitives.backward_data.execute(c.streams[chunk.lane], arguments);
  }
  if (inline_input_) inline_input_->backward(chunk);
}

void ConvRunner::weight_gradient(const Chunk& chunk, std::byte* dx) {
  float* sum = partial(chunk.lane);
  const bool replaces = chunk.first_of_lane && (chunk.lane > 0 || !accumulate_);
  if (by_winograd_.weight_gradient)
    return winograd_.weight_gradient(chunk.count, input(chunk), dx, !replaces, sum, scratch(chunk));
  if (tap_gradient_)
    return tap_gradient_(stripe_.taps(), chunk.count, input(chunk), dx, !replaces, sum,
                         scratch(chunk));
  Prepared& p = prepared(chunk);
  auto& arguments = p.backward_weights[chunk.lane];
  float* target = replaces ? sum : reinterpret_cast<float*>(c.lane_at(chunk.lane, chunk_gradient_));
  arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<std::byte*>(input(chunk)));
  arguments.at(DNNL_ARG_DIFF_DST).set_data_handle(dx);
  arguments.at(DNNL_ARG_DIFF_WEIGHTS).set_data_handle(target);
  p.primitives.backward_weights.execute(c.streams[chunk.lane], arguments);
  if (target != sum) float_kernels().add(target, gradient_size_, sum);
}

std::byte* ConvRunner::data_gradient(const Chunk& chunk) {
  return inline_input_ ? inline_input_->gradient(chunk) : c.lane_at(chunk.lane, dinput_);
}

const std::byte* ConvRunner::input_gradient(const Chunk& chunk) { return data_gradient(chunk); }

void ConvRunner::after_backward(std::size_t lane, bool) {
  const Range range = part(gradient_size_, lane);
  for (std::size_t other = 1; other < c.lanes; ++other)
    float_kernels().add(partial(other) + range.begin, range.end - range.begin,
                        gradient_ + range.begin);
}

std::vector<std::size_t> ConvRunner::slices() const {
  std::vector<std::size_t> all = norm.slices();
  all.push_back(c.parameters.slice_index(geometry_.name + ".weight"));
  return all;
}

}  // namespace lockstep::cpu
