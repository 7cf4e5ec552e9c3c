#pragma once

#include <cstddef>
#include <dnnl.hpp>
#include <string>
#include <vector>

#include "lockstep/backend/winograd.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cpu/kernels/tap_gradient.hpp"
#include "ports/cpu/plan/lowering.hpp"

namespace lockstep::cpu {

/// This process's oneDNN engine.
const dnnl::engine& engine();

/// Whether oneDNN computes convolutions by its reference code, as 2.6 does on Arm processors
/// without SVE of 512 bits.
bool library_refers();

/// An attribute for every primitive: the caller provides the scratch memory, so that several lanes
/// may each run one at the same time.
dnnl::primitive_attr user_scratchpad();

/// Before oneDNN makes machine code: throws std::bad_alloc where the system gives no more memory.
/// oneDNN does not look whether it got some for its code, and would end the process with SIGSEGV.
void require_room_for_kernels();

/// One convolution's geometry, for any number of rows.
struct ConvGeometry {
  std::string name;
  std::size_t in_channels, height, width, out_channels, out_height, out_width, kernel, stride,
      padding;
  Storage storage;
  std::size_t above, below;  ///< lines of padding: others than at the sides for a band
  std::size_t groups = 1;

  static ConvGeometry of(const nn::Network& network, std::size_t node, Storage storage);
  /// The same convolution on 1/stripes of each image. Correct only where no line needs its
  /// neighbours.
  ConvGeometry stripe(std::size_t stripes) const;
  /// The same convolution on some lines of an image.
  ConvGeometry on(std::size_t in_lines, std::size_t out_lines, std::size_t above_,
                  std::size_t below_) const;
  nn::WindowLines lines() const;
  dnnl::memory::desc source(std::size_t rows) const;       ///< nhwc, as all activations are
  dnnl::memory::desc destination(std::size_t rows) const;  ///< nhwc
  dnnl::memory::dims weight_dims() const;
  dnnl::memory::desc any_weights() const;  ///< of the activations' type, in any format
  std::size_t source_bytes() const;        ///< of one row
  std::size_t destination_bytes() const;
  std::size_t weight_count() const;
  TapShape taps() const;
};

/// The formats that oneDNN prefers for one convolution's weights; in general all different. They
/// are chosen once for a convolution and a storage type and then used for every number of rows, so
/// that the arena has one format for all programs. `gradient` (float) is also the format of the
/// weights' slice in the arena.
struct ConvFormats {
  dnnl::memory::desc forward, backward_data, gradient;
  static ConvFormats choose(const ConvGeometry& geometry);
};

/// Where such a gradient's values lie, with a row for each output. In groups whose outputs do not
/// fill a block of the format, rows of padding follow them.
nn::MatrixForm matrix_form(const dnnl::memory::desc& gradient);

/// True where gradients are [out / 16, in / 16, kernel, kernel, 16, 16 of out], without padding.
bool in_blocks_of_16(const ConvGeometry& geometry, const ConvFormats& formats);

/// How the weight gradient is computed tap by tap; nullptr where oneDNN does it.
TapGradient tap_gradient_of(const ConvGeometry& geometry, const ConvFormats& formats);

/// Training's three primitives of one convolution for one number of rows, each single-threaded.
/// Those that are not needed are empty.
struct ConvPrimitives {
  dnnl::convolution_forward forward;
  dnnl::convolution_backward_data backward_data;  ///< not needed when the input is the image
  dnnl::convolution_backward_weights backward_weights;
  std::size_t scratch_bytes = 0;
  std::string implementations;  ///< oneDNN's names, for reports
  /// The data gradient of `other`.
  void take_data_gradient(const ConvPrimitives& other);
};
/// `without`: passes that need no primitive, because they use Winograd's algorithm.
ConvPrimitives make_conv(const ConvGeometry& geometry, const ConvFormats& formats, std::size_t rows,
                         bool needs_data_gradient, const backend::WinogradPasses& without = {});
/// ConvPrimitives::scratch_bytes of the same, without making them.
std::size_t conv_scratch_bytes(const ConvGeometry& geometry, const ConvFormats& formats,
                               std::size_t rows, bool needs_data_gradient,
                               const backend::WinogradPasses& without);

/// What follows the products of an evaluation's convolution: the sum with what is in the
/// destination, and the ReLU, which keeps a NaN but makes one of minus infinity. REQUIRES: the
/// thread that runs the primitive takes denormals for zero.
dnnl::primitive_attr followed_by(bool sum, bool relu);

dnnl::memory::desc bias_desc(const ConvGeometry& geometry);  ///< float

/// Evaluation's convolution with a bias. Throws Error where oneDNN has no implementation.
dnnl::convolution_forward::primitive_desc folded_desc(const ConvGeometry& geometry,
                                                      const dnnl::memory::desc& weights,
                                                      std::size_t rows,
                                                      const dnnl::primitive_attr& attributes);

/// Weights like these as they are stored in files: float, [out, in / groups, kernel, kernel].
dnnl::memory::desc plain_weights(const dnnl::memory::desc& like);

/// Copies a tensor into another format, on the calling thread, and waits for the end.
void reorder(const dnnl::memory::desc& from, const void* source, const dnnl::memory::desc& to,
             void* target);

/// Reorders one weight tensor from the arena's format into a library's. The work is cut into parts
/// along the output channels, so that all lanes can share it.
class WeightReorder {
 public:
  WeightReorder() = default;
  WeightReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to, std::size_t parts);
  /// Runs the parts lane, lane + lanes, ... Both buffers have the sizes of the descriptors.
  void run(float* from, void* to, std::size_t lane, std::size_t lanes, dnnl::stream& stream) const;

 private:
  struct ReorderPart {
    dnnl::memory::desc from, to;
    dnnl::reorder primitive;
  };
  std::vector<ReorderPart> parts_;
};

}  // namespace lockstep::cpu
