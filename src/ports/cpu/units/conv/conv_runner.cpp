#include "ports/cpu/units/conv/conv_runner.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "ports/cpu/units/point_runner.hpp"

namespace lockstep::cpu {

ConvRunner::ConvRunner(Context& context, std::size_t number, Image& image)
    : Runner(context, number), image_(image) {}

ConvCut ConvCut::of(const ConvGeometry& whole, const Chunk& chunk, bool band) {
  const nn::LineRange out = chunk.of(whole.out_height), in = chunk.of(whole.height);
  if (!band) {
    const ConvGeometry stripe = whole.stripe(chunk.stripes);
    return {out, in, in, out, 0, 0, chunk.count, stripe, stripe};
  }
  const std::size_t out_before = chunk.image() * whole.out_height,
                    in_before = chunk.image() * whole.height;
  const nn::Reach read = nn::read_by(whole.lines(), chunk.in_image(whole.out_height));
  const nn::ReaderLines readers = nn::readers_of(whole.lines(), chunk.in_image(whole.height));
  const std::size_t read_of_own = in.count - readers.idle_above - readers.idle_below;
  return {.out = out,
          .in = read.lines.after(in_before),
          .own_in = in,
          .outs = readers.lines.after(out_before),
          .idle_above = readers.idle_above,
          .idle_below = readers.idle_below,
          .rows = 1,
          .of_out = whole.on(read.lines.count, out.count, read.above, read.below),
          .of_in = whole.on(read_of_own, readers.lines.count, readers.above, readers.below)};
}

std::vector<std::size_t> ConvCut::sizes() const {
  return {rows,         of_out.height,    of_out.out_height, of_out.above, of_out.below,
          of_in.height, of_in.out_height, of_in.above,       of_in.below};
}

std::size_t WeightCopies::add(Context& c, const dnnl::memory::desc& from,
                              const dnnl::memory::desc& to, const BufferRequest& request) {
  const auto found = std::find_if(copies_.begin(), copies_.end(),
                                  [&](const Copy& copy) { return copy.format == to; });
  if (found != copies_.end()) return found->buffer;
  copies_.push_back(
      {to, c.buffer(request), c.spec.planned ? WeightReorder() : WeightReorder(from, to, c.lanes)});
  return copies_.back().buffer;
}

void WeightCopies::make(Context& c, float* weights, std::size_t lane) {
  for (Copy& copy : copies_)
    copy.reorder.run(weights, c.at<void>(copy.buffer), lane, c.lanes, c.streams[lane]);
}

void ConvRunner::plan() {
  geometry_ = ConvGeometry::of(c.network, unit.node, c.storage);
  from_ = c.map_of(c.network.nodes[unit.node].inputs[0]);
  if (unit.input) from_.held = c.held[index].input_gradient;
  c.regions[unit.level].each_chunk([&](const Chunk& chunk) {
    parts_.push_back({ConvCut::of(geometry_, chunk, c.has_bands), nullptr});
  });
  choose_algorithms();
  const std::string weight = geometry_.name + ".weight";
  weights_ = c.parameters.find(backend::Part::weights, weight);
  gradient_ = c.parameters.find(backend::Part::gradients, weight);
  gradient_size_ = formats_->gradient.get_size() / sizeof(float);
  if (unit.input && !c.units[*unit.input].in_region)
    inline_input_ = static_cast<PointRunner*>(c.runners[*unit.input]);

  const std::size_t reader = c.units[unit.readers[0]].level;
  norm.plan(c, unit.bn, unit.level, reader);
  x_ = c.value_buffer(map.bytes() * c.spec.batch, index);
  if (by_winograd_.forward)
    winograd_forward_ = c.forward_buffer(winograd_.weight_bytes(), unit.level, unit.level);
  if (!unit.input) image_.plan(unit.level, index);
  plan_backward();
  for (Part& part : parts_) {
    const auto [place, made] = prepared_.try_emplace(part.cut.sizes());
    if (made) place->second = prepare(part.cut);
    part.prepared = &place->second;
  }
}

/// A stripe or a band may prefer other formats than a whole image, and bands of other sizes others;
/// stripes are all of one size.
ConvFormats ConvRunner::formats_of(const ConvCut& cut) const {
  if (formats_ && !c.has_bands) return *formats_;
  ConvFormats formats = ConvFormats::choose(cut.of_out);
  if (c.has_bands && cut.outs.count > 0)
    formats.backward_data = ConvFormats::choose(cut.of_in).backward_data;
  formats.gradient = c.parameters.formats(unit.node).gradient;
  return formats;
}

void ConvRunner::choose_algorithms() {
  formats_ = formats_of(parts_.front().cut);
  if (WinogradConv::fits(geometry_, *formats_)) {
    winograd_ = WinogradConv(geometry_);
    by_winograd_ = c.spec.winograd.passes(WinogradConv::shape(geometry_));
  }
  if (!by_winograd_.weight_gradient) tap_gradient_ = tap_gradient_of(geometry_, *formats_);
}

void ConvRunner::plan_backward() {
  const std::size_t r = unit.level;
  for (std::size_t lane = 1; lane < c.lanes; ++lane)
    partials_.push_back(c.weights_buffer(gradient_size_ * sizeof(float), r));
  if (c.spec.weights_later > 0) late_dx_ = c.late_buffer(map.bytes() * c.spec.batch, r);
  if (!by_winograd_.weight_gradient && !tap_gradient_)
    chunk_gradient_ = c.fixed_scratch(unit.level, gradient_size_ * sizeof(float));
  std::size_t most = 0;
  for (const Part& part : parts_) most = std::max(most, gradients(part.cut).count);
  dx_ = c.fixed_scratch(unit.level, most * map.line_bytes);
  if (!unit.differentiates) return;
  if (by_winograd_.data_gradient)
    winograd_backward_ = c.backward_buffer(winograd_.weight_bytes(), r, r);
  if (inline_input_) return;
  dinput_ = c.gradient_place(index, from_);
}

ConvRunner::Prepared ConvRunner::prepare(const ConvCut& cut) {
  Prepared result;
  result.formats = formats_of(cut);
  backend::WinogradPasses without = by_winograd_;
  if (tap_gradient_) without.weight_gradient = true;
  const bool needs_data_gradient = unit.differentiates && cut.outs.count > 0;
  const auto made = [&](const ConvGeometry& g, bool data_gradient,
                        const backend::WinogradPasses& other) {
    if (!c.spec.planned) return make_conv(g, result.formats, cut.rows, data_gradient, other);
    ConvPrimitives none;
    none.scratch_bytes = conv_scratch_bytes(g, result.formats, cut.rows, data_gradient, other);
    return none;
  };
  if (c.has_bands) {
    result.primitives = made(cut.of_out, false, without);
    if (needs_data_gradient && !without.data_gradient)
      result.primitives.take_data_gradient(
          made(cut.of_in, true, {.forward = true, .weight_gradient = true}));
  } else {
    result.primitives = made(cut.of_out, needs_data_gradient, without);
  }
  copy_weights(result, needs_data_gradient);
  std::size_t scratch = result.primitives.scratch_bytes;
  if (by_winograd_.any()) {
    result.winograd_of_out = result.winograd_of_in = winograd_;
    if (c.has_bands) {
      result.winograd_of_out =
          winograd_.on(cut.out.count, cut.out.first - cut.in.first, cut.in.end() - cut.out.end());
      result.winograd_of_in = winograd_.on(cut.own_in.count, cut.own_in.first - cut.outs.first,
                                           cut.outs.end() - cut.own_in.end());
    }
    scratch = std::max({scratch, result.winograd_of_out.scratch_bytes(cut.rows),
                        result.winograd_of_in.scratch_bytes(cut.rows)});
  }
  if (tap_gradient_) scratch = std::max(scratch, tap_scratch_bytes(geometry_.taps()));
  c.library_scratch = std::max(c.library_scratch, scratch);
  return result;
}

void ConvRunner::copy_weights(Prepared& p, bool needs_data_gradient) {
  const auto request = [&](BufferRequest::Kind kind, const dnnl::memory::desc& format) {
    return BufferRequest{kind, format.get_size(), 0, unit.level, unit.level};
  };
  const ConvFormats& formats = p.formats;
  if (!by_winograd_.forward && formats.forward != formats.gradient)
    p.forward_copy = forward_copies_.add(c, formats.gradient, formats.forward,
                                         request(BufferRequest::Kind::forward, formats.forward));
  if (needs_data_gradient && !by_winograd_.data_gradient)
    p.backward_copy =
        backward_copies_.add(c, formats.gradient, formats.backward_data,
                             request(BufferRequest::Kind::backward, formats.backward_data));
}

dnnl::memory library_scratch(const Context& c, std::size_t lane) {
  const auto bytes = static_cast<dnnl::memory::dim>(c.library_scratch);
  return {{{bytes}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a},
          engine(),
          c.lane_library_scratch[lane].data()};
}

void ConvRunner::bind() {
  for (const Part& part : parts_) {
    if (!part.prepared->forward.empty()) continue;
    for (std::size_t lane = 0; lane < c.lanes; ++lane) bind_lane(*part.prepared, part.cut, lane);
  }
}

void ConvRunner::bind_lane(Prepared& p, const ConvCut& cut, std::size_t lane) {
  using dnnl::memory;
  const auto fixed = [](const memory::desc& desc, void* data) {
    return memory(desc, engine(), data);
  };
  const memory source(cut.of_out.source(cut.rows), engine(), nullptr);
  const memory destination(cut.of_out.destination(cut.rows), engine(), nullptr);
  const memory scratch = library_scratch(c, lane);
  p.forward.push_back({{DNNL_ARG_SRC, source},
                       {DNNL_ARG_WEIGHTS, fixed(p.formats.forward, weights_)},
                       {DNNL_ARG_DST, destination},
                       {DNNL_ARG_SCRATCHPAD, scratch}});
  p.backward_weights.push_back(
      {{DNNL_ARG_SRC, source},
       {DNNL_ARG_DIFF_WEIGHTS, memory(formats_->gradient, engine(), nullptr)},
       {DNNL_ARG_DIFF_DST, destination},
       {DNNL_ARG_SCRATCHPAD, scratch}});
  if (!p.primitives.backward_data) return;
  p.backward_data.push_back(
      {{DNNL_ARG_DIFF_SRC, memory(cut.of_in.source(cut.rows), engine(), nullptr)},
       {DNNL_ARG_WEIGHTS, fixed(p.formats.backward_data, c.at<void>(p.backward_copy))},
       {DNNL_ARG_DIFF_DST, memory(cut.of_in.destination(cut.rows), engine(), nullptr)},
       {DNNL_ARG_SCRATCHPAD, scratch}});
}

const std::byte* ConvRunner::input(const Chunk& chunk) {
  const nn::LineRange& lines = part_of(chunk).cut.in;
  return unit.input ? c.runners[*unit.input]->value(chunk, lines) : image_.value(chunk, lines);
}

void ConvRunner::before_forward(std::size_t lane) {
  if (inline_input_) inline_input_->before_forward(lane);
  before_again(lane);
}

void ConvRunner::before_again(std::size_t lane) {
  if (by_winograd_.forward)
    winograd_.transform_forward(weights_, lane, c.lanes, c.at<void>(winograd_forward_));
  forward_copies_.make(c, weights_, lane);
}

void ConvRunner::forward_again(const Chunk& chunk) {
  auto& [cut, p] = part_of(chunk);
  if (by_winograd_.forward)
    return p->winograd_of_out.forward(cut.rows, input(chunk), weights_,
                                      c.at<void>(winograd_forward_), output(cut.out),
                                      scratch(chunk));
  auto& arguments = p->forward[chunk.lane];
  arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<std::byte*>(input(chunk)));
  arguments.at(DNNL_ARG_DST).set_data_handle(output(cut.out));
  if (p->forward_copy) arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(c.at<void>(*p->forward_copy));
  p->primitives.forward.execute(c.streams[chunk.lane], arguments);
}

void ConvRunner::forward(const Chunk& chunk) {
  forward_again(chunk);
  const nn::LineRange own = map.of(chunk);
  double* sums = norm.sums(chunk.index);
  c.kernels.statistics(output(own), map.pixels(own), geometry_.out_channels, norm.pivot(), sums,
                       sums + geometry_.out_channels);
}

void ConvRunner::before_backward(std::size_t lane, bool accumulate) {
  if (lane == 0) accumulate_ = accumulate;
  const Range range = part(geometry_.out_channels, lane);
  norm.differentiate(range.begin, range.end, accumulate);
  if (!unit.differentiates) return;
  if (by_winograd_.data_gradient)
    winograd_.transform_backward(weights_, lane, c.lanes, c.at<void>(winograd_backward_));
  backward_copies_.make(c, weights_, lane);
}

float* ConvRunner::partial(std::size_t lane) const {
  return lane == 0 ? gradient_ : c.at<float>(partials_[lane - 1]);
}

void ConvRunner::backward(const Chunk& chunk) {
  const ConvCut& cut = part_of(chunk).cut;
  const nn::LineRange made = gradients(cut);
  std::byte* late = late_dx_ ? c.late_at(*late_dx_) : nullptr;
  std::byte* dx = late && !c.has_bands ? late + map.offset(made)  // its own lines
                                       : c.lane_at(chunk.lane, dx_);
  output_gradient(made, dx);
  std::byte* own = dx + (cut.out.first - made.first) * map.line_bytes;
  if (!late)
    weight_gradient(chunk, own);
  else if (c.has_bands)
    std::memcpy(late + map.offset(cut.out), own, cut.out.count * map.line_bytes);
  if (!unit.differentiates) return;
  make_data_gradient(chunk, dx + (cut.outs.first - made.first) * map.line_bytes);
  if (inline_input_) inline_input_->backward(chunk);
}

void ConvRunner::own_output_gradient(const nn::LineRange& lines, std::byte* dx) {
  const PointRunner& reader = static_cast<PointRunner&>(*c.runners[unit.readers[0]]);
  c.kernels.norm_backward(
      {reader.gradient(lines), output(lines), norm.mean(), norm.a(), norm.b(), norm.c(), dx},
      map.pixels(lines), geometry_.out_channels);
}

void ConvRunner::output_gradient(const nn::LineRange& lines, std::byte* dx) {
  if (c.spec.tile.is_whole()) return own_output_gradient(lines, dx);
  const std::size_t image = lines.first / map.shape.height, before = image * map.shape.height;
  const nn::LineRange own = nn::common(lines, c.spec.tile.of(map.shape.height).after(before));
  const auto copy = [&](std::size_t first, std::size_t end) {
    if (first < end)
      std::memcpy(dx + (first - lines.first) * map.line_bytes, from_others(image, first - before),
                  (end - first) * map.line_bytes);
  };
  copy(lines.first, std::min(own.first, lines.end()));
  if (own.count > 0) own_output_gradient(own, dx + (own.first - lines.first) * map.line_bytes);
  copy(std::max(own.end(), lines.first), lines.end());
}

std::byte* ConvRunner::from_others(std::size_t image, std::size_t line) {
  const nn::LineRange own = c.spec.tile.of(map.shape.height),
                      all = c.tile_lines[c.spec.tile.index][index].output_gradient;
  const std::size_t place = line < own.first ? line - all.first : line - all.first - own.count;
  return from_others_.data() + (image * (all.count - own.count) + place) * map.line_bytes;
}

void ConvRunner::plan_messages() {
  c.share_lines(c.made_values[unit.level], x_, map, index, &UnitLines::value);
  if (dinput_.buffer)
    c.share_lines(c.made_gradients[unit.level], *dinput_.buffer, from_, index,
                  &UnitLines::input_gradient);
  if (!unit.differentiates) return;
  const std::size_t height = map.shape.height;
  const nn::LineRange all = c.tile_lines[c.spec.tile.index][index].output_gradient;
  if (!c.spec.planned)
    from_others_.resize((all.count - c.spec.tile.of(height).count) * map.line_bytes * c.spec.batch);
  c.output_gradients[unit.level].add(
      {.needed = c.needed(index, &UnitLines::output_gradient),
       .height = height,
       .line_bytes = map.line_bytes,
       .give = [this, height](
                   std::size_t image, const nn::LineRange& lines,
                   std::byte* to) { own_output_gradient(lines.after(image * height), to); },
       .take =
           [this](std::size_t image, const nn::LineRange& lines, const std::byte* from) {
             std::memcpy(from_others(image, lines.first), from, lines.count * map.line_bytes);
           }});
}

void ConvRunner::make_weights(const Chunk& chunk) {
  weight_gradient(chunk, c.late_at(*late_dx_) + map.offset(part_of(chunk).cut.out));
}

void ConvRunner::weight_gradient(const Chunk& chunk, std::byte* dx) {
  auto& [cut, p] = part_of(chunk);
  float* sum = partial(chunk.lane);
  const bool replaces = chunk.first_of_lane && (chunk.lane > 0 || !accumulate_);
  if (by_winograd_.weight_gradient)
    return p->winograd_of_out.weight_gradient(cut.rows, input(chunk), dx, !replaces, sum,
                                              scratch(chunk));
  if (tap_gradient_)
    return tap_gradient_(cut.of_out.taps(), cut.rows, input(chunk), dx, !replaces, sum,
                         scratch(chunk));
  auto& arguments = p->backward_weights[chunk.lane];
  float* target = replaces ? sum : reinterpret_cast<float*>(c.lane_at(chunk.lane, chunk_gradient_));
  arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<std::byte*>(input(chunk)));
  arguments.at(DNNL_ARG_DIFF_DST).set_data_handle(dx);
  arguments.at(DNNL_ARG_DIFF_WEIGHTS).set_data_handle(target);
  p->primitives.backward_weights.execute(c.streams[chunk.lane], arguments);
  if (target != sum) float_kernels().add(target, gradient_size_, sum);
}

void ConvRunner::make_data_gradient(const Chunk& chunk, std::byte* dx) {
  auto& [cut, p] = part_of(chunk);
  std::byte* to = data_gradient(chunk);
  if (by_winograd_.data_gradient)
    return p->winograd_of_in.data_gradient(cut.rows, dx, weights_, c.at<void>(winograd_backward_),
                                           to, scratch(chunk));
  const std::size_t above = cut.idle_above * from_.line_bytes,
                    below = cut.idle_below * from_.line_bytes;
  std::memset(to, 0, above);
  std::memset(to + cut.own_in.count * from_.line_bytes - below, 0, below);
  if (!p->primitives.backward_data) return;
  auto& arguments = p->backward_data[chunk.lane];
  arguments.at(DNNL_ARG_DIFF_DST).set_data_handle(dx);
  arguments.at(DNNL_ARG_DIFF_SRC).set_data_handle(to + above);
  p->primitives.backward_data.execute(c.streams[chunk.lane], arguments);
}

std::byte* ConvRunner::data_gradient(const Chunk& chunk) {
  return inline_input_ ? inline_input_->gradient(from_.of(chunk)) : c.at(dinput_, chunk);
}

const std::byte* ConvRunner::input_gradient(const Chunk& chunk) { return data_gradient(chunk); }

void ConvRunner::after_backward(std::size_t lane, bool) {
  if (!late_dx_) add_partials(lane);
}

void ConvRunner::add_partials(std::size_t lane) {
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

std::vector<std::size_t> ConvRunner::late_slices() const {
  if (!late_dx_) return {};
  return {c.parameters.slice_index(geometry_.name + ".weight")};
}

}  // namespace lockstep::cpu
