#include "ports/cpu/units/conv/winograd_conv.hpp"

#include <algorithm>

namespace lockstep::cpu {

namespace {

// A convolution's tiles stay in the second-level cache or near it. The blocks of a weight gradient
// are larger with many channels: each ends with a transform of all weights. In outputs:
constexpr std::size_t fewest_gradient_outputs = 448, most_gradient_outputs = 1792;
constexpr std::size_t gradient_bytes = std::size_t{8} << 20;

std::size_t forward_tiles(const WinogradForm& form) {
  return (form.side == 2 ? 448 : 896) / (form.side * form.side);
}

std::size_t gradient_tiles(const WinogradForm& form, const WinogradChannels& channels) {
  const std::size_t area = form.side * form.side;
  const std::size_t a_tile =
      form.planes() * (channels.in + channels.out + 32) * sizeof(float) / form.per_word;
  return std::clamp(gradient_bytes / a_tile, fewest_gradient_outputs / area,
                    most_gradient_outputs / area);
}

// Of tiles with 4 on a side, transformed weights are four times as large as others. From this size
// on, reading them from memory takes as long as making them.
constexpr std::size_t most_weight_bytes = std::size_t{16} << 20;

const WinogradKernels* kernels_of(const ConvGeometry& g) {
  return winograd_kernels(g.storage, std::min(g.in_channels, g.out_channels));
}

}  // namespace

bool WinogradConv::fits(const ConvGeometry& g, const ConvFormats& formats) {
  return kernels_of(g) && g.kernel == 3 && g.stride == 1 && g.padding == 1 &&
         std::max(g.in_channels, g.out_channels) <= winograd_most_channels &&
         in_blocks_of_16(g, formats);
}

backend::WinogradShape WinogradConv::shape(const ConvGeometry& g) {
  return {g.in_channels, g.out_channels, g.height, g.width};
}

WinogradConv::WinogradConv(const ConvGeometry& g)
    : kernels_(kernels_of(g)),
      height_(g.height),
      width_(g.width),
      channels_{g.in_channels, g.out_channels, false},
      rotated_{g.out_channels, g.in_channels, true} {}

WinogradConv WinogradConv::on(std::size_t lines, std::size_t above, std::size_t below) const {
  WinogradConv band = *this;
  band.height_ = lines;
  band.above_ = above;
  band.below_ = below;
  return band;
}

std::size_t WinogradConv::weight_bytes() const {
  const WinogradForm& form = kernels_->form;
  const std::size_t bytes =
      sizeof(float) * std::max(form.weights(channels_), form.weights(rotated_));
  return bytes <= most_weight_bytes ? bytes : 0;
}

std::size_t WinogradConv::panel_floats() const {
  return kernels_->form.panel(weight_bytes() == 0 ? std::max(channels_.in, channels_.out) : 0);
}

std::size_t WinogradConv::scratch_bytes(std::size_t rows) const {
  const WinogradForm& form = kernels_->form;
  const std::size_t all = images(rows).tiles(form.side);
  const std::size_t tiles = std::min(forward_tiles(form), all),
                    of_gradient = std::min(gradient_tiles(form, channels_), all);
  return sizeof(float) *
         (panel_floats() + std::max({form.values(tiles, channels_), form.values(tiles, rotated_),
                                     form.gradient_values(of_gradient, channels_)}));
}

WinogradScratch WinogradConv::scratch_at(std::byte* memory, std::size_t tiles) const {
  return {tiles, memory + panel_floats() * sizeof(float), memory};
}

WinogradWeights WinogradConv::weights_of(const float* weights, const void* transformed) const {
  return {weight_bytes() > 0 ? transformed : nullptr, weights};
}

void WinogradConv::transform_forward(const float* weights, std::size_t p, std::size_t parts,
                                     void* transformed) const {
  if (weight_bytes() > 0) kernels_->transform_weights(channels_, weights, p, parts, transformed);
}

void WinogradConv::transform_backward(const float* weights, std::size_t p, std::size_t parts,
                                      void* transformed) const {
  if (weight_bytes() > 0) kernels_->transform_weights(rotated_, weights, p, parts, transformed);
}

void WinogradConv::convolve(const WinogradChannels& channels, std::size_t rows,
                            const std::byte* from, const WinogradWeights& weights, std::byte* to,
                            std::byte* scratch) const {
  kernels_->convolve(images(rows), part_of_all(rows, channels), from, channels, weights, {}, to,
                     scratch_at(scratch, forward_tiles(kernels_->form)));
}

void WinogradConv::evaluate(std::size_t rows, const WinogradPart& part, const std::byte* x,
                            const float* weights, const void* transformed,
                            const WinogradAfter& after, std::byte* y, std::byte* scratch) const {
  kernels_->convolve(images(rows), part, x, channels_, weights_of(weights, transformed), after, y,
                     scratch_at(scratch, forward_tiles(kernels_->form)));
}

WinogradPart WinogradConv::part_of_all(std::size_t rows, const WinogradChannels& channels) const {
  return {0, images(rows).tiles(side()), 0, channels.out};
}

WinogradPart WinogradConv::whole(std::size_t rows) const { return part_of_all(rows, channels_); }

WinogradPart WinogradConv::share(std::size_t rows, std::size_t lane, std::size_t lanes) const {
  WinogradPart part = whole(rows);
  const auto cut = [&](std::size_t all, std::size_t unit, std::size_t& first, std::size_t& count) {
    const std::size_t units = (all + unit - 1) / unit;
    first = std::min(all, units * lane / lanes * unit);
    count = std::min(all, units * (lane + 1) / lanes * unit) - first;
  };
  const std::size_t panels = (channels_.out + winograd_width - 1) / winograd_width;
  const bool heavy =
      9 * channels_.in * channels_.out > rows * height_ * width_ * (channels_.in + channels_.out);
  if (heavy && panels >= lanes)
    cut(part.outs, winograd_width, part.first_out, part.outs);
  else
    cut(part.tiles, 1, part.first_tile, part.tiles);
  return part;
}

WinogradPart WinogradConv::lines(std::size_t image, std::size_t first, std::size_t count) const {
  const std::size_t across = (width_ + side() - 1) / side();
  return {(image * tile_lines() + first) * across, count * across, 0, channels_.out};
}

void WinogradConv::forward(std::size_t rows, const std::byte* x, const float* weights,
                           const void* transformed, std::byte* y, std::byte* scratch) const {
  convolve(channels_, rows, x, weights_of(weights, transformed), y, scratch);
}

void WinogradConv::data_gradient(std::size_t rows, const std::byte* dy, const float* weights,
                                 const void* transformed, std::byte* dx, std::byte* scratch) const {
  convolve(rotated_, rows, dy, weights_of(weights, transformed), dx, scratch);
}

void WinogradConv::weight_gradient(std::size_t rows, const std::byte* x, const std::byte* dy,
                                   bool add, float* gradient, std::byte* scratch) const {
  kernels_->weight_gradient(images(rows), x, dy, channels_, add, gradient,
                            scratch_at(scratch, gradient_tiles(kernels_->form, channels_)));
}

}  // namespace lockstep::cpu
