#pragma once

#include "lockstep/backend/winograd.hpp"
#include "ports/cpu/kernels/winograd/winograd.hpp"
#include "ports/cpu/units/conv/convolution.hpp"

namespace lockstep::cpu {

/// One convolution by Winograd's algorithm, for any number of rows. The weights and their gradient
/// are in the arena's format.
class WinogradConv {
 public:
  /// True for 3 x 3, stride 1, padding 1, a processor that has the kernels, and
  /// an arena's format that they know.
  static bool fits(const ConvGeometry& geometry, const ConvFormats& formats);
  static backend::WinogradShape shape(const ConvGeometry& geometry);

  WinogradConv() = default;
  explicit WinogradConv(const ConvGeometry& geometry);  ///< REQUIRES: fits()
  /// The same on a band of lines, whose source begins with `above` lines and ends with `below`
  /// lines of other bands.
  WinogradConv on(std::size_t lines, std::size_t above, std::size_t below) const;

  /// Of the transformed weights, of either direction; 0 where they would take too much memory, and
  /// each call transforms them itself.
  std::size_t weight_bytes() const;
  std::size_t scratch_bytes(std::size_t rows) const;  ///< of a call with as many rows

  /// Transforms part `part` of `parts` of the weights, for forward or for the data gradient.
  void transform_forward(const float* weights, std::size_t part, std::size_t parts,
                         void* transformed) const;
  void transform_backward(const float* weights, std::size_t part, std::size_t parts,
                          void* transformed) const;
  /// `weights`: the arena's. `transformed` is not read where weight_bytes() is 0.
  void forward(std::size_t rows, const std::byte* x, const float* weights, const void* transformed,
               std::byte* y, std::byte* scratch) const;
  /// Evaluation's: what follows the products is a part of it.
  void evaluate(std::size_t rows, const WinogradPart& part, const std::byte* x,
                const float* weights, const void* transformed, const WinogradAfter& after,
                std::byte* y, std::byte* scratch) const;
  WinogradPart whole(std::size_t rows) const;
  /// What a lane makes where lanes share the rows: some outputs where weights are larger than
  /// images, else some tiles.
  WinogradPart share(std::size_t rows, std::size_t lane, std::size_t lanes) const;
  std::size_t side() const { return kernels_->form.side; }  ///< of a tile, in outputs
  /// Lines of tiles in an image, and the part of some of them.
  std::size_t tile_lines() const { return (height_ + side() - 1) / side(); }
  WinogradPart lines(std::size_t image, std::size_t first, std::size_t count) const;
  void data_gradient(std::size_t rows, const std::byte* dy, const float* weights,
                     const void* transformed, std::byte* dx, std::byte* scratch) const;
  /// gradient = or += this chunk's.
  void weight_gradient(std::size_t rows, const std::byte* x, const std::byte* dy, bool add,
                       float* gradient, std::byte* scratch) const;

 private:
  WinogradImages images(std::size_t rows) const { return {rows, height_, width_, above_, below_}; }
  WinogradPart part_of_all(std::size_t rows, const WinogradChannels& channels) const;
  void convolve(const WinogradChannels& channels, std::size_t rows, const std::byte* from,
                const WinogradWeights& weights, std::byte* to, std::byte* scratch) const;
  WinogradWeights weights_of(const float* weights, const void* transformed) const;
  WinogradScratch scratch_at(std::byte* memory, std::size_t tiles) const;
  std::size_t panel_floats() const;

  const WinogradKernels* kernels_ = nullptr;
  std::size_t height_ = 0, width_ = 0, above_ = 0, below_ = 0;
  WinogradChannels channels_{}, rotated_{};
};

}  // namespace lockstep::cpu
