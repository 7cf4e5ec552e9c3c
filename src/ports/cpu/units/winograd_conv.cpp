#include "ports/cpu/units/winograd_conv.hpp"

#include <algorithm>

namespace lockstep::cpu {

namespace {

// A convolution's tiles fit into the second-level cache together with their products. The blocks of
// a weight gradient are larger: each ends with a transform of all weights.
constexpr std::size_t forward_tiles = 56, gradient_tiles = 128;

float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }
const float* floats(const std::byte* memory) { return reinterpret_cast<const float*>(memory); }

WinogradScratch scratch_at(std::byte* memory, std::size_t tiles) {
  return {tiles, floats(memory) + WinogradScratch::panel_floats, floats(memory)};
}

}  // namespace

bool WinogradConv::fits(const ConvGeometry& g, const ConvFormats& formats) {
  const dnnl::memory::desc known(g.weight_dims(), dnnl::memory::data_type::f32,
                                 dnnl::memory::format_tag::OIhw16i16o);
  const auto sound = [](std::size_t channels) {
    return channels % 16 == 0 && channels <= winograd_most_channels;
  };
  return winograd_kernels() && g.storage == Storage::fp32 && g.kernel == 3 && g.stride == 1 &&
         g.padding == 1 && sound(g.in_channels) && sound(g.out_channels) &&
         formats.gradient == known;
}

backend::WinogradShape WinogradConv::shape(const ConvGeometry& g) {
  return {g.in_channels, g.out_channels, g.height, g.width};
}

WinogradConv::WinogradConv(const ConvGeometry& g)
    : kernels_(winograd_kernels()),
      height_(g.height),
      width_(g.width),
      channels_{g.in_channels, g.out_channels, false},
      rotated_{g.out_channels, g.in_channels, true} {}

std::size_t WinogradConv::weight_bytes() const {
  return sizeof(float) * std::max(winograd_weights(channels_), winograd_weights(rotated_));
}

std::size_t WinogradConv::scratch_bytes(std::size_t rows) const {
  const std::size_t tiles = std::min(gradient_tiles, images(rows).tiles());
  return sizeof(float) *
         (WinogradScratch::panel_floats + std::max(WinogradScratch::value_floats(tiles, channels_),
                                                   WinogradScratch::value_floats(tiles, rotated_)));
}

void WinogradConv::transform_forward(const float* weights, std::size_t p, std::size_t parts,
                                     void* transformed) const {
  kernels_->transform_weights(channels_, weights, p, parts, static_cast<float*>(transformed));
}

void WinogradConv::transform_backward(const float* weights, std::size_t p, std::size_t parts,
                                      void* transformed) const {
  kernels_->transform_weights(rotated_, weights, p, parts, static_cast<float*>(transformed));
}

void WinogradConv::convolve(const WinogradChannels& channels, std::size_t rows,
                            const std::byte* from, const void* transformed, std::byte* to,
                            std::byte* scratch) const {
  kernels_->convolve(images(rows), floats(from), channels, static_cast<const float*>(transformed),
                     floats(to), scratch_at(scratch, forward_tiles));
}

void WinogradConv::forward(std::size_t rows, const std::byte* x, const void* transformed,
                           std::byte* y, std::byte* scratch) const {
  convolve(channels_, rows, x, transformed, y, scratch);
}

void WinogradConv::data_gradient(std::size_t rows, const std::byte* dy, const void* transformed,
                                 std::byte* dx, std::byte* scratch) const {
  convolve(rotated_, rows, dy, transformed, dx, scratch);
}

void WinogradConv::weight_gradient(std::size_t rows, const std::byte* x, const std::byte* dy,
                                   bool add, float* gradient, std::byte* scratch) const {
  kernels_->weight_gradient(images(rows), floats(x), floats(dy), channels_, add, gradient,
                            scratch_at(scratch, gradient_tiles));
}

}  // namespace lockstep::cpu
