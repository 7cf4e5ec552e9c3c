#include "ports/cpu/units/conv/convolution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <onednn_calls.hpp>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "lockstep/base/room.hpp"

namespace lockstep::cpu {

namespace {

using dnnl::memory;
using dnnl::prop_kind;
using Desc = memory::desc;

constexpr auto direct = dnnl::algorithm::convolution_direct;

memory::dim dim(std::size_t n) { return static_cast<memory::dim>(n); }

memory::data_type type_of(Storage storage) {
  return storage == Storage::fp32 ? memory::data_type::f32 : memory::data_type::bf16;
}

/// Weights [groups, out / groups, in / groups, kernel, kernel].
bool in_groups(const Desc& weights) { return onednn::dims_of(weights).size() == 5; }

/// How a convolution's window moves: the strides, and the padding above and left, below and right.
struct Window {
  explicit Window(const ConvGeometry& g)
      : stride{dim(g.stride), dim(g.stride)},
        before{dim(g.above), dim(g.padding)},
        after{dim(g.below), dim(g.padding)} {}
  memory::dims stride, before, after;
};

dnnl::convolution_forward::primitive_desc forward_desc(const ConvGeometry& g, const Desc& weights,
                                                       std::size_t rows) {
  const Window w(g);
  return onednn::describe<dnnl::convolution_forward>(
      engine(), user_scratchpad(), prop_kind::forward_training, direct, g.source(rows), weights,
      g.destination(rows), w.stride, w.before, w.after);
}

/// Backward: dnnl::convolution_backward_data or dnnl::convolution_backward_weights.
template <class Backward>
typename Backward::primitive_desc backward_desc(
    const ConvGeometry& g, const Desc& weights, std::size_t rows,
    const dnnl::convolution_forward::primitive_desc& hint) {
  const Window w(g);
  return onednn::describe_backward<Backward>(engine(), user_scratchpad(), hint, direct,
                                             g.source(rows), weights, g.destination(rows), w.stride,
                                             w.before, w.after);
}

bool is_reference(const char* implementation) {
  return std::string_view(implementation).find("ref") != std::string_view::npos;
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

void require_room_for_kernels() {
  require_room(std::size_t{32} << 20);  // a unit's code has some pieces of 256 KB
}

bool library_refers() {
  static const bool does = [] {
    ConvGeometry g{"", 64, 56, 56, 64, 56, 56, 3, 1, 1, Storage::fp32, 1, 1};
    return is_reference(forward_desc(g, g.any_weights(), 1).impl_info_str());
  }();
  return does;
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

ConvGeometry ConvGeometry::of(const nn::Network& network, std::size_t index, Storage storage) {
  const nn::Node& node = network.nodes[index];
  const nn::Shape& in = network.nodes[node.inputs[0]].shape;
  return {node.name,         in.channels,      in.height,    in.width,    node.shape.channels,
          node.shape.height, node.shape.width, node.kernel,  node.stride, node.padding,
          storage,           node.padding,     node.padding, node.groups};
}

ConvGeometry ConvGeometry::stripe(std::size_t stripes) const {
  ConvGeometry part = *this;
  part.height /= stripes;
  part.out_height /= stripes;
  return part;
}

ConvGeometry ConvGeometry::on(std::size_t in_lines, std::size_t out_lines, std::size_t above_,
                              std::size_t below_) const {
  ConvGeometry part = *this;
  part.height = in_lines;
  part.out_height = out_lines;
  part.above = above_;
  part.below = below_;
  return part;
}

nn::WindowLines ConvGeometry::lines() const {
  return {height, out_height, kernel, stride, padding};
}

Desc ConvGeometry::source(std::size_t rows) const {
  return {{dim(rows), dim(in_channels), dim(height), dim(width)},
          type_of(storage),
          memory::format_tag::nhwc};
}

Desc ConvGeometry::destination(std::size_t rows) const {
  return {{dim(rows), dim(out_channels), dim(out_height), dim(out_width)},
          type_of(storage),
          memory::format_tag::nhwc};
}

memory::dims ConvGeometry::weight_dims() const {
  if (groups > 1)
    return {dim(groups), dim(out_channels / groups), dim(in_channels / groups), dim(kernel),
            dim(kernel)};
  return {dim(out_channels), dim(in_channels), dim(kernel), dim(kernel)};
}

Desc ConvGeometry::any_weights() const {
  return {weight_dims(), type_of(storage), memory::format_tag::any};
}

std::size_t ConvGeometry::source_bytes() const {
  return in_channels * height * width * bytes_of(storage);
}
std::size_t ConvGeometry::destination_bytes() const {
  return out_channels * out_height * out_width * bytes_of(storage);
}
std::size_t ConvGeometry::weight_count() const {
  return out_channels * in_channels / groups * kernel * kernel;
}

TapShape ConvGeometry::taps() const {
  return {in_channels, out_channels, height, width, out_height,
          out_width,   kernel,       stride, above, padding};
}

nn::MatrixForm matrix_form(const Desc& gradient) {
  using Tag = memory::format_tag;
  struct Known {
    Tag tag, tag_of_groups;
    std::size_t panel;
  };
  constexpr Known known[] = {{Tag::OIhw16i16o, Tag::gOIhw16i16o, 16},
                             {Tag::Ohwi16o, Tag::gOhwi16o, 16},
                             {Tag::OIhw8i8o, Tag::gOIhw8i8o, 8},
                             {Tag::Ohwi8o, Tag::gOhwi8o, 8},
                             {Tag::OIhw4i4o, Tag::gOIhw4i4o, 4},
                             {Tag::Ohwi4o, Tag::gOhwi4o, 4},
                             {Tag::oihw, Tag::goihw, 1},
                             {Tag::ohwi, Tag::gohwi, 1}};
  const memory::dims dims = onednn::dims_of(gradient);
  const bool grouped = in_groups(gradient);
  const std::size_t groups = grouped ? static_cast<std::size_t>(dims[0]) : 1,
                    outputs = static_cast<std::size_t>(dims[grouped ? 1 : 0]);
  const std::size_t size = gradient.get_size() / sizeof(float);
  const auto is = [&](Tag tag) { return gradient == Desc(dims, memory::data_type::f32, tag); };
  if (is(grouped ? Tag::hwigo : Tag::hwio)) {
    const std::size_t rows = groups * outputs;
    return {rows, size / rows, rows, size, rows};
  }
  for (const auto& [tag, tag_of_groups, panel] : known) {
    if (!is(grouped ? tag_of_groups : tag)) continue;
    const std::size_t rows = groups * ((outputs + panel - 1) / panel * panel),
                      columns = size / rows;
    return {rows, columns, panel, panel * columns, panel};
  }
  return {};
}

bool in_blocks_of_16(const ConvGeometry& g, const ConvFormats& formats) {
  if (g.groups > 1) return false;
  const Desc blocks(g.weight_dims(), memory::data_type::f32, memory::format_tag::OIhw16i16o);
  return formats.gradient == blocks && g.in_channels % 16 == 0 && g.out_channels % 16 == 0;
}

TapGradient tap_gradient_of(const ConvGeometry& g, const ConvFormats& formats) {
  if (!in_blocks_of_16(g, formats) || g.out_channels % 32 != 0) return nullptr;
  // oneDNN loses time at strides and at the ends of short lines. With fewer channels, copying the
  // pixels costs more than it wins. (tests/bench/RESULTS.md has the figures.)
  constexpr std::size_t fewest_channels = 32, short_line = 8;
  const bool wins = (g.kernel == 1 || g.stride > 1 || g.out_width <= short_line) &&
                    g.in_channels >= fewest_channels;
  return wins ? tap_gradient(g.storage) : nullptr;
}

ConvFormats ConvFormats::choose(const ConvGeometry& g) {
  constexpr std::size_t typical_rows = 4;
  const Desc any = g.any_weights();
  const Desc any_float(g.weight_dims(), memory::data_type::f32, memory::format_tag::any);
  const auto forward = forward_desc(g, any, typical_rows);
  return {
      forward.weights_desc(),
      backward_desc<dnnl::convolution_backward_data>(g, any, typical_rows, forward).weights_desc(),
      backward_desc<dnnl::convolution_backward_weights>(g, any_float, typical_rows, forward)
          .diff_weights_desc()};
}

namespace {

/// Calls take(description) for each pass that needs a primitive.
template <class Take>
void describe_passes(const ConvGeometry& g, const ConvFormats& formats, std::size_t rows,
                     bool needs_data_gradient, const backend::WinogradPasses& without,
                     const Take& take) {
  try {
    const auto forward = forward_desc(g, formats.forward, rows);
    if (!without.forward) take(forward);
    if (needs_data_gradient && !without.data_gradient)
      take(backward_desc<dnnl::convolution_backward_data>(g, formats.backward_data, rows, forward));
    if (!without.weight_gradient)
      take(backward_desc<dnnl::convolution_backward_weights>(g, formats.gradient, rows, forward));
  } catch (const dnnl::error& e) {
    throw Error(
        fmt::format("oneDNN has no implementation of {} for {} rows: {}", g.name, rows, e.what()));
  }
}

void make(const dnnl::convolution_forward::primitive_desc& desc, ConvPrimitives& to) {
  to.forward = dnnl::convolution_forward(desc);
}
void make(const dnnl::convolution_backward_data::primitive_desc& desc, ConvPrimitives& to) {
  to.backward_data = dnnl::convolution_backward_data(desc);
}
void make(const dnnl::convolution_backward_weights::primitive_desc& desc, ConvPrimitives& to) {
  to.backward_weights = dnnl::convolution_backward_weights(desc);
}

}  // namespace

ConvPrimitives make_conv(const ConvGeometry& g, const ConvFormats& formats, std::size_t rows,
                         bool needs_data_gradient, const backend::WinogradPasses& without) {
  ConvPrimitives result;
  describe_passes(g, formats, rows, needs_data_gradient, without, [&](const auto& desc) {
    make(desc, result);
    result.scratch_bytes = std::max(result.scratch_bytes, desc.scratchpad_desc().get_size());
    result.implementations +=
        std::string(result.implementations.empty() ? "" : " | ") + desc.impl_info_str();
  });
  return result;
}

std::size_t conv_scratch_bytes(const ConvGeometry& g, const ConvFormats& formats, std::size_t rows,
                               bool needs_data_gradient, const backend::WinogradPasses& without) {
  std::size_t bytes = 0;
  describe_passes(g, formats, rows, needs_data_gradient, without, [&](const auto& desc) {
    bytes = std::max(bytes, desc.scratchpad_desc().get_size());
  });
  return bytes;
}

void ConvPrimitives::take_data_gradient(const ConvPrimitives& other) {
  backward_data = other.backward_data;
  scratch_bytes = std::max(scratch_bytes, other.scratch_bytes);
  implementations += " | " + other.implementations;
}

// oneDNN's plain ReLU makes 0 of a NaN, which would hide a network that has diverged. Its leaky one
// keeps it, and with the smallest slope there is, taken for zero, it is a ReLU.
dnnl::primitive_attr followed_by(bool sum, bool relu) {
  constexpr float least = 1e-45f;
  dnnl::post_ops after;
  if (sum) after.append_sum(1);
  if (relu) onednn::append_relu(after, least);
  dnnl::primitive_attr attributes = user_scratchpad();
  attributes.set_post_ops(after);
  return attributes;
}

Desc bias_desc(const ConvGeometry& g) {
  return {{dim(g.out_channels)}, memory::data_type::f32, memory::format_tag::a};
}

dnnl::convolution_forward::primitive_desc folded_desc(const ConvGeometry& g, const Desc& weights,
                                                      std::size_t rows,
                                                      const dnnl::primitive_attr& attributes) {
  const Window w(g);
  try {
    return onednn::describe<dnnl::convolution_forward>(
        engine(), attributes, prop_kind::forward_inference, direct, g.source(rows), weights,
        bias_desc(g), g.destination(rows), w.stride, w.before, w.after);
  } catch (const dnnl::error& error) {
    throw Error(fmt::format("oneDNN has no implementation of {} for {} rows of evaluation: {}",
                            g.name, rows, error.what()));
  }
}

Desc plain_weights(const Desc& like) {
  return {onednn::dims_of(like), memory::data_type::f32,
          in_groups(like) ? memory::format_tag::goihw : memory::format_tag::oihw};
}

void reorder(const Desc& from, const void* source, const Desc& to, void* target) {
  require_room_for_kernels();
  dnnl::stream stream(engine());
  memory a(from, engine(), const_cast<void*>(source)), b(to, engine(), target);
  dnnl::reorder(a, b).execute(stream, a, b);
  stream.wait();
}

WeightReorder::WeightReorder(const Desc& from, const Desc& to, std::size_t parts) {
  constexpr memory::dim block = 64;  // few library formats interleave more output channels
  const memory::dims dims = onednn::dims_of(from);
  const memory::dim blocks = dims[0] % block == 0 ? dims[0] / block : 1;
  memory::dim count = std::min<memory::dim>(blocks, dim(parts));
  const auto cut = [&](const Desc& whole, memory::dim p) {
    memory::dims sizes = dims, offsets(dims.size(), 0);
    offsets[0] = blocks * p / count * block;
    sizes[0] = blocks * (p + 1) / count * block - offsets[0];
    try {
      return whole.submemory_desc(sizes, offsets);
    } catch (const dnnl::error&) {
      return Desc();  // the format cannot be cut there: one lane does everything
    }
  };
  for (memory::dim p = 0; p < count; ++p) {
    ReorderPart part{count > 1 ? cut(from, p) : from, count > 1 ? cut(to, p) : to, {}};
    if (part.from.is_zero() || part.to.is_zero()) {
      count = 1;
      p = -1;
      parts_.clear();
      continue;
    }
    const dnnl::reorder::primitive_desc desc(engine(), part.from, engine(), part.to,
                                             user_scratchpad());
    check(desc.scratchpad_desc().get_size() == 0, "a reorder of weights needs scratch memory");
    part.primitive = dnnl::reorder(desc);
    parts_.push_back(std::move(part));
  }
}

void WeightReorder::run(float* from, void* to, std::size_t lane, std::size_t lanes,
                        dnnl::stream& stream) const {
  for (std::size_t p = lane; p < parts_.size(); p += lanes) {
    memory source(parts_[p].from, engine(), from), target(parts_[p].to, engine(), to);
    parts_[p].primitive.execute(stream, source, target);
  }
}

}  // namespace lockstep::cpu
