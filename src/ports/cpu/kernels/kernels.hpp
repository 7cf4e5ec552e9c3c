#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/data/data_set_info.hpp"
#include "lockstep/nn/lines.hpp"

namespace lockstep::cpu {

/// How activations and their gradients are stored: as a float, or as the upper half of a float
/// (rounded to nearest even).
enum class Storage { fp32, bf16 };
constexpr std::size_t bytes_of(Storage storage) { return storage == Storage::fp32 ? 4 : 2; }

// In all kernels a value is a dense matrix [rows, channels] (rows = images x height x width).
// channels is a multiple of 16; per-channel arrays are float [channels]. Sums are added to their
// targets, in double.

/// z = relu(x * scale + shift [+ skip [* skip_scale + skip_shift]]); a NaN stays a NaN.
struct PointForward {
  const void* x;
  const float *scale, *shift;
  const void* skip;                      ///< nullptr: none
  const float *skip_scale, *skip_shift;  ///< nullptr: the skip is added as it is
  void* z;
};

/// g = (z > 0 or x * scale + shift > 0) ? first + second : 0, and the sums that batch norm's
/// backward needs.
struct PointBackward {
  const void* first;   ///< gradient of z; may be g itself
  const void* second;  ///< another contribution to it, or nullptr
  const void* z;       ///< nullptr: the sign is found from x, scale and shift
  const void* x;       ///< input of the batch norm
  const float *scale, *shift, *mean;
  const void* skip_x;  ///< input of a batch norm in the skip branch, or nullptr
  const float* skip_mean;
  void* g;
  double *sum_g, *sum_gx, *sum_gskip;  ///< of g, g * (x - mean), g * (skip_x - skip_mean)
};

/// dx = g * a + (x - mean) * b + c.
struct NormBackward {
  const void *g, *x;
  const float *mean, *a, *b, *c;
  void* dx;
};

/// The gradient of some input lines of a pooling: max pooling, where the first of equal values in a
/// window is the largest, or the mean of each window. Lines are those of one image.
struct PoolBackward {
  nn::WindowLines window;  ///< across, it moves in the same way
  std::size_t width, out_width;
  nn::LineRange in, outs, read;  ///< of dx; the outputs that read them; the inputs that those read
  const void *x, *dy;            ///< the lines `read` (nullptr: each output is a mean) and `outs`
  void* dx;
};

struct SgdUpdate {
  float lr, momentum, weight_decay;
  bool nesterov;
  float outer = 1;  ///< LARS only
};

/// The first part of a LAMB step (optim::LambRule).
struct LambUpdate {
  float beta1, beta2, epsilon, weight_decay;
  float scale1, scale2;
};

/// How the values v of an image enter the network: as v * a + b where they are uint8, else as
/// (v - a) * b; as 0 where they stand for no data.
struct ImageEntry {
  const float *a, *b;  ///< [period], in which the values of the channels repeat
  std::size_t period;  ///< a multiple of the channels and of 16
  std::optional<float> no_data = {};
};

/// The kernels for one storage type, compiled for one instruction set.
struct Kernels {
  /// out = in * scale + shift. in: [pixels, channels] uint8. scale and shift hold 48 entries, in
  /// which the values of the channels repeat (channels divides 48).
  void (*normalise)(const std::uint8_t* in, std::size_t values, const float* scale48,
                    const float* shift48, void* out);
  /// The same for any element and any number of channels. in: whole pixels.
  void (*enter)(data::Element element, const void* in, std::size_t values, const ImageEntry& by,
                void* out);
  void (*from_float)(const float* in, std::size_t values, void* out);
  /// sum of (x - pivot) and of its square
  void (*statistics)(const void* x, std::size_t rows, std::size_t channels, const float* pivot,
                     double* sum, double* sum_of_squares);
  void (*point_forward)(const PointForward& a, std::size_t rows, std::size_t channels);
  void (*point_backward)(const PointBackward& a, std::size_t rows, std::size_t channels);
  void (*norm_backward)(const NormBackward& a, std::size_t rows, std::size_t channels);
  void (*pool_backward)(const PoolBackward& a, std::size_t channels);
  /// out = first + second
  void (*sum)(const void* first, const void* second, std::size_t values, void* out);
  /// out[channels] = mean over rows
  void (*average)(const void* x, std::size_t rows, std::size_t channels, float* out);
  /// each of `rows` rows of out = in[channels] * factor
  void (*spread)(const float* in, float factor, std::size_t rows, std::size_t channels, void* out);
};

/// y [rows, y_row], outputs [first, last) = x [rows, inputs] * the transpose of weights [outputs,
/// inputs] + bias. inputs: a multiple of 16. Each sum has one order, whatever else a call makes.
struct LinearForward {
  const float *x, *weights, *bias;
  std::size_t rows, inputs, first, last;
  float* y;
  std::size_t y_row;
};

/// Kernels that are float only.
struct FloatKernels {
  void (*add)(const float* from, std::size_t count, float* to);  ///< to += from
  void (*sgd)(const SgdUpdate& rule, std::size_t count, const float* gradient, float* weight,
              float* velocity);
  /// The same with the lr in the velocity, and `outer` outside (optim::lars).
  void (*lars)(const SgdUpdate& rule, std::size_t count, const float* gradient, float* weight,
               float* velocity);
  /// Updates the moments and writes the step, without lr and trust ratio, in place of the gradient.
  void (*lamb)(const LambUpdate& rule, std::size_t count, float* gradient, const float* weight,
               float* first, float* second);
  /// Updates the velocity and writes Muon's direction in place of the gradient.
  void (*direction)(float momentum, bool nesterov, std::size_t count, float* gradient,
                    float* velocity);
  /// The sum of squares, in double: the same bits with any instruction set.
  double (*squares)(const float* values, std::size_t count);
  /// count: a multiple of 16 here and below.
  void (*scale)(float factor, std::size_t count, float* values);
  /// average += share * (weight - average)
  void (*average)(float share, std::size_t count, const float* weight, float* average);
  void (*linear)(const LinearForward& a);
};

/// Floats in memory of other formats, and arithmetic on floats (backend::Vectors), for any count.
/// What they read and write does not overlap.
struct VectorKernels {
  void (*widen_f16)(const std::uint16_t* from, std::size_t count, float* to);
  void (*widen_bf16)(const std::uint16_t* from, std::size_t count, float* to);
  void (*round_f16)(const float* from, std::size_t count, std::uint16_t* to);
  void (*round_bf16)(const float* from, std::size_t count, std::uint16_t* to);
  /// Of one block.
  void (*decode_i8)(const std::int8_t* from, float scale, std::size_t count, float* to);
  void (*encode_i8)(const float* from, float inverse, std::size_t count, std::int8_t* to);
  void (*add)(float factor, const float* from, std::size_t count, float* to);
  void (*scale)(float factor, std::size_t count, float* values);
  /// As arithmetic::magnitude_bits().
  std::uint32_t (*largest)(const float* values, std::size_t count);
};

/// A matrix as `steps` times `lanes` numbers; of each step, the `panel` lanes of a panel lie next
/// to each other. Lane l of step t is number l / panel * panel_stride + l % panel + t *
/// step_stride.
struct LaneGrid {
  std::size_t lanes, panel, panel_stride, steps, step_stride;
};

/// Products with K vectors, each in one piece (backend::Thin). [first, last): what to do of all
/// lanes, or of all steps.
struct ThinKernels {
  /// For each lane, the matrix times the vectors `by` of all steps.
  void (*sum_steps)(const LaneGrid& grid, const float* matrix, const float* by, std::size_t first,
                    std::size_t last, float* sums);
  /// For each step, the matrix times the vectors `by` of all lanes.
  void (*sum_lanes)(const LaneGrid& grid, const float* matrix, const float* by, std::size_t first,
                    std::size_t last, float* sums);
  /// matrix = keep * matrix + factor * lanes x steps, of lanes [first, last)
  void (*add_outer)(const LaneGrid& grid, float keep, float factor, const float* lanes,
                    const float* steps, std::size_t first, std::size_t last, float* matrix);
};
struct ThinTable {
  ThinKernels of_width[8];  ///< 1 to 8 vectors
};

/// 16 rows of a product of matrices that are stored in panels of 16 columns, [rows, 16] each.
struct PanelProduct {
  const float* left;
  std::size_t left_chunk;  ///< floats from 16 steps of the sum to the next 16
  const float* right;      ///< its rows are the steps
  std::size_t right_panel;
  float* out;
  std::size_t out_panel;
  std::size_t panels, chunks;  ///< columns and steps, 16 each
  bool add;                    ///< to what is in `out`
};
struct PanelKernels {
  /// The numbers of a step in `left`, for 16 rows, lie next to each other, and steps 16 apart.
  void (*multiply)(const PanelProduct& product);
  /// The same where those of a row lie next to each other, and rows 16 apart.
  void (*multiply_rows)(const PanelProduct& product);
  /// to [16, 16] = from [16, 16] transposed
  void (*transpose)(const float* from, float* to);
};

/// The best kernels for this processor. bf16 exists only with AVX512-BF16; throws InputError
/// otherwise.
const Kernels& kernels(Storage storage);
const FloatKernels& float_kernels();
const VectorKernels& vector_kernels();
const ThinKernels& thin_kernels(std::size_t width);
const PanelKernels& panel_kernels();
/// "avx512", "avx2", or least_instruction_set(): part of what bit-exactness depends on.
const char* instruction_set();

}  // namespace lockstep::cpu
