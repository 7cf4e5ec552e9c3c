#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/backend/batch_norm.hpp"
#include "lockstep/backend/parameters.hpp"
#include "lockstep/backend/precision.hpp"
#include "lockstep/backend/vectors.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/optim/rule.hpp"

/// Our own kernels, as functions that put them into a stream. All pointers are device pointers.
/// Values are [rows, channels] (rows = images x height x width), 16-byte aligned, with `channels` a
/// multiple of 8; `Storage` says how they are stored, and the arithmetic is fp32. Sums are added in
/// an order that depends on the shape alone: the same bits each time.
namespace lockstep::cuda {

enum class Storage { fp32, bf16, fp16 };
Storage storage_of(backend::Precision precision);
std::size_t bytes_of(Storage storage);

/// The values that change from step to step. They are in device memory, so that the launches never
/// change.
struct DeviceScalars {
  optim::StepScalars step;
  backend::LossScale loss_scale;
  float inverse_scale = 1;  ///< 1 / the loss scale in this step's gradients, times the clip factor
  std::uint32_t overflow = 0;     ///< 1: not all of this step's gradients are finite
  std::uint32_t apply = 1;        ///< 0: this step's updates change nothing
  double clipped_norm = 0;        ///< of all gradients, without the loss scale, before clipping
  optim::TrustRatios trust = {};  ///< of the newest update of all slices; 0: the rule has none
};

// ---- image/image.cu -----------------------------------------------------------------------------

struct ImageInput {
  const void* pixels = nullptr;  ///< [pixels, channels]: elements, or already normalised floats
  std::size_t count = 0;         ///< pixels
  int channels = 0, padded = 0;  ///< padded: channels of the output, a multiple of 4
  /// Per channel, for uint8; of other elements the mean, and 1 / deviation.
  const float *scale = nullptr, *shift = nullptr;
  /// Elements that are `no_data`, or NaN, become 0.
  bool has_no_data = false;
  float no_data = 0;
  /// Before that: see data::shaped(). Null: elements keep their shape.
  data::Curve curve = data::Curve::linear;
  const float *low = nullptr, *high = nullptr;
};
void normalise_elements(data::Element element, const ImageInput& in, Storage storage, void* out,
                        cudaStream_t stream);
void convert_floats(const ImageInput& in, Storage storage, void* out, cudaStream_t stream);

// ---- norm.cu, norm_gradient.cu ------------------------------------------------------------------

struct Matrix {
  std::size_t rows = 0;
  int channels = 0;
  std::size_t count() const { return rows * static_cast<std::size_t>(channels); }
};

/// One batch norm's per-channel numbers, passed between its kernels, on the device: float
/// [norm_channel_arrays, channels].
struct NormChannels {
  float *mean, *inverse_deviation, *scale, *shift, *variance;  ///< of forward
  float *a, *b, *c;                                            ///< of backward
  __half *half_scale, *half_shift;  ///< of forward, for convolutions that normalise their input
};
constexpr std::size_t norm_channel_arrays = 9;
NormChannels norm_channels(float* memory, int channels);

/// Where ranks share a batch norm's statistics: what they tell each other, on the device. A rank's
/// chunk has how many rows it has, then two numbers for each channel: mean and sum of squared
/// distances from it, or the two sums of backward.
struct NormChunks {
  float* all = nullptr;  ///< nullptr: the batch norm has its own statistics
  std::size_t ranks = 1, rank = 0;
  std::size_t rows = 0;  ///< of this rank: images
  static constexpr std::size_t floats(int channels) {
    return 1 + 2 * static_cast<std::size_t>(channels);
  }
};

/// The batch norm's slices of the arena. The gradients of running statistics are this rank's share
/// of the batch's statistics.
struct NormParameters {
  const float *gamma, *beta, *running_mean, *running_var;
  float *dgamma, *dbeta, *mean_share, *var_share;
  float epsilon, momentum;
  NormChunks chunks = {};  ///< where ranks share the statistics
};

/// Where the blocks that sum a batch norm meet. Kernels of one stream may share it.
struct SumScratch {
  void* lines;        ///< norm_scratch() bytes
  unsigned* tickets;  ///< norm_tickets() of them: 0 at first, and after each kernel
};
std::size_t norm_scratch(const Matrix& shape);
std::size_t norm_tickets(const Matrix& shape);

/// Mean, deviation, scale and shift of the batch.
void norm_statistics(const void* x, const Matrix& shape, Storage storage,
                     const NormParameters& parameters, const NormChannels& channels,
                     const SumScratch& scratch, cudaStream_t stream);
/// The same from the sums of x and of x * x, [2, channels], which a convolution has made.
void norm_statistics_of_sums(const float* sums, const Matrix& shape,
                             const NormParameters& parameters, const NormChannels& channels,
                             cudaStream_t stream);
/// Where ranks share statistics, both only fill this rank's chunk; this follows once all are there.
void norm_statistics_of_ranks(const Matrix& shape, const NormParameters& parameters,
                              const NormChannels& channels, cudaStream_t stream);
/// Without rows: the chunk counts for nothing.
void norm_nothing(const NormChunks& chunks, int channels, cudaStream_t stream);
/// The same from the running statistics.
void norm_running(const Matrix& shape, const NormParameters& parameters,
                  const NormChannels& channels, cudaStream_t stream);
/// y = x * scale + shift [+ skip], [relu]. A NaN stays a NaN.
struct NormApply {
  const void *x, *skip;  ///< skip: nullptr for none
  bool relu;
  void* y;
  std::uint8_t* bits = nullptr;  ///< with a skip: nullptr, or the place for Mask::from_bits
  bool down = false;  ///< begins with the last rows, which x's writer has left in the cache
  /// Of a batch norm that is applied to the skip here; nullptr for none.
  const float *skip_scale = nullptr, *skip_shift = nullptr;
};
void norm_apply(const NormApply& op, const Matrix& shape, Storage storage,
                const NormChannels& channels, cudaStream_t stream);

/// How ReLU's gradient finds where the input was positive.
enum class Mask {
  none,      ///< no ReLU
  from_x,    ///< from x * scale + shift, computed again
  from_bits  ///< from what norm_apply() left: there was a skip
};
/// One byte for each 16-byte access of the output: bit k is 1 where its value k, as stored, is
/// positive.
std::size_t mask_bytes(const Matrix& shape, Storage storage);
struct NormBackward {
  const void *first, *second;  ///< gradients of y; second: nullptr for none
  const void* x;
  Mask mask;
  const std::uint8_t* bits;  ///< for Mask::from_bits
  void* g;  ///< nullptr, or the place for the gradient after the ReLU (the skip's); may be `first`
  bool down = false;  ///< norm_input_gradient begins with the last rows
};
/// Computes g, the sums over it, dgamma, dbeta, the shares of the running statistics, and the
/// numbers a, b, c. accumulate: adds to the existing gradients.
void norm_gradients(const NormBackward& op, const Matrix& shape, Storage storage,
                    const NormParameters& parameters, const NormChannels& channels, bool accumulate,
                    const DeviceScalars* scalars, const SumScratch& scratch, cudaStream_t stream);
/// The same, without g, from dgamma and dbeta, [2, channels], which a convolution has made.
void norm_gradients_of_sums(const float* sums, const Matrix& shape,
                            const NormParameters& parameters, const NormChannels& channels,
                            bool accumulate, const DeviceScalars* scalars, cudaStream_t stream);
/// As norm_statistics_of_ranks(), in backward: gamma's and beta's gradients are this rank's.
void norm_gradients_of_ranks(const Matrix& shape, const NormParameters& parameters,
                             const NormChannels& channels, bool accumulate,
                             const DeviceScalars* scalars, cudaStream_t stream);
/// dx = g * a + (x - mean) * b + c, where g is op.g if that was written; dx may be op.x.
void norm_input_gradient(const NormBackward& op, const Matrix& shape, Storage storage,
                         const NormChannels& channels, void* dx, cudaStream_t stream);

// ---- pool.cu ------------------------------------------------------------------------------------

struct Window {
  std::size_t batch = 0;
  int channels = 0, height = 0, width = 0, out_height = 0, out_width = 0;
  int kernel = 0, stride = 0, padding = 0;
};
/// index: [outputs] uint8, the position in the window of the largest pixel (the first of equal
/// ones).
void max_pool(const void* x, const Window& window, Storage storage, void* y, std::uint8_t* index,
              cudaStream_t stream);
/// second: another gradient of y, or nullptr.
void max_pool_gradient(const void* first, const void* second, const std::uint8_t* index,
                       const Window& window, Storage storage, void* dx, cudaStream_t stream);

/// The mean of each window, which is as large as its stride, or of the pixels that it has.
void mean_pool(const void* x, const Window& window, Storage storage, void* y, cudaStream_t stream);
void mean_pool_gradient(const void* first, const void* second, const Window& window,
                        Storage storage, void* dx, cudaStream_t stream);

/// y: every stride-th pixel of x, with x's channels in the middle of y's and zeros around them (He
/// et al. 2016, option A). `channels` of the window are those of x.
void subsample(const void* x, const Window& window, int out_channels, Storage storage, void* y,
               cudaStream_t stream);
void subsample_gradient(const void* first, const void* second, const Window& window,
                        int out_channels, Storage storage, void* dx, cudaStream_t stream);

/// Mean over each image's pixels: x [images, pixels, channels] to float [images, channels].
void average(const void* x, std::size_t images, int pixels, int channels, Storage storage,
             float* mean, cudaStream_t stream);
void average_gradient(const float* dmean, std::size_t images, int pixels, int channels,
                      Storage storage, void* dx, cudaStream_t stream);

// ---- loss.cu ------------------------------------------------------------------------------------

/// backend::Metrics on the device: of one row, or since the host last took them.
struct DeviceMetrics {
  double loss;
  unsigned long long rows, top1, top5;
  double sums[3];
};
struct LossInput {
  float* logits;      ///< [rows, classes]; without the bias on input, with it on output
  const float* bias;  ///< [classes]
  const data::Target* targets;
  const float* wanted = nullptr;  ///< [rows, classes], of labels and values: see data::Batch
  std::size_t rows = 0;
  int classes = 0;  ///< or labels, or values
  data::Task task = data::Task::classes;
  float smoothing = 0, delta = 0;
  const float* weights = nullptr;  ///< [classes]: see backend::LossSpec; nullptr: 1
};
/// backend::row_loss() of each row, added to `metrics`; targets are nullptr where no row has one.
/// row_metrics: [rows], scratch. dlogits (nullptr in evaluation) is multiplied by gradient scale
/// and loss scale.
void loss(const LossInput& in, const DeviceScalars* scalars, DeviceMetrics* row_metrics,
          DeviceMetrics* metrics, float* dlogits, cudaStream_t stream);
/// dbias[classes] = sums over the rows of dlogits.
void bias_gradient(const float* dlogits, std::size_t rows, int classes, bool accumulate,
                   float* dbias, cudaStream_t stream);

// ---- overflow.cu --------------------------------------------------------------------------------

/// Sets the scale for the next step, and clears its overflow flag.
void set_loss_scale(DeviceScalars* scalars, const backend::LossScale& scale, cudaStream_t stream);
/// Checks all `count` (a multiple of 4) gradients. Then decides whether the step's updates apply
/// and what the next loss scale is.
void judge(const float* gradients, std::size_t count, DeviceScalars* scalars, cudaStream_t stream);
/// The same by one value, which needs no alignment.
void judge_by(const float* largest, DeviceScalars* scalars, cudaStream_t stream);

// ---- arena.cu -----------------------------------------------------------------------------------

/// A piece of one slice of the arena, for one thread block.
struct Chunk {
  std::size_t offset = 0;   ///< floats, a multiple of 16
  std::uint32_t count = 0;  ///< floats, a multiple of 4: includes the slice's padding
  std::uint32_t slice = 0;
};
constexpr std::uint32_t chunk_floats = 4096;

void set_scalars(DeviceScalars* scalars, const optim::StepScalars& step, cudaStream_t stream);

/// What a step leaves for the host, in memory of the host that the device writes to.
struct StepWords {
  DeviceMetrics metrics;
  DeviceScalars scalars;
};
/// Copies both to `there`, a device address, and clears the metrics. metrics: nullptr for none.
void put_aside(DeviceMetrics* metrics, const DeviceScalars* scalars, StepWords* there,
               cudaStream_t stream);

/// A word in host memory that shows how far a stream is.
struct Beacon {
  std::uint64_t* place = nullptr;   ///< its device address
  std::uint64_t* newest = nullptr;  ///< on the device: what light_beacon() last wrote
};
void light_beacon(const Beacon& beacon, std::uint64_t number, cudaStream_t stream);
/// Writes the newest number plus `more`. Recorded once, it fits each step.
void raise_beacon(const Beacon& beacon, std::uint64_t more, cudaStream_t stream);

struct UpdateArgs {
  const Chunk* chunks;
  std::size_t first_chunk = 0, chunk_count = 0;
  const float* weight_decay;     ///< per slice
  const float* rates = nullptr;  ///< per slice, by which lr is multiplied; nullptr: by 1
  float momentum = 0;
  bool nesterov = false;
  const float* gradients;
  float *weights, *velocities;
  void* copies;  ///< of the weights, in `storage`; nullptr in fp32
  Storage storage = Storage::fp32;
  const DeviceScalars* scalars;
};
void sgd_update(const UpdateArgs& args, cudaStream_t stream);

struct StatisticsArgs {
  const Chunk* chunks;
  std::size_t first_chunk = 0, chunk_count = 0;
  const float* kept;  ///< per slice
  const float* fresh;
  float* running;
  const DeviceScalars* scalars;
};
void update_running_statistics(const StatisticsArgs& args, cudaStream_t stream);

/// to[i] = from[i] in `storage`; count: a multiple of 4.
void convert_weights(const float* from, std::size_t count, Storage storage, void* to,
                     cudaStream_t stream);
/// to[i] = from[i], or to[i] + from[i]. from: stored as `storage`. count: a multiple of 4.
void add_gradient(const void* from, std::size_t count, Storage storage, bool accumulate, float* to,
                  cudaStream_t stream);

// ---- vectors.cu: what backend::Vectors says --------------------------------------------------

void cast_vector(const backend::Vector& from, const backend::Vector& to, cudaStream_t stream);
void add_vector(float factor, const backend::Vector& from, const backend::Vector& to,
                cudaStream_t stream);
void scale_vector(float factor, const backend::Vector& values, cudaStream_t stream);
void largest_value(const backend::Vector& values, float* found, cudaStream_t stream);

/// Of backend::Vectors, with its matrices.
void multiply(const backend::Matrix& matrix, const backend::Thin& columns,
              const backend::Thin& product, cudaStream_t stream);
void multiply_transposed(const backend::Matrix& matrix, const backend::Thin& rows,
                         const backend::Thin& product, cudaStream_t stream);
void add_product(float keep, float factor, const backend::Thin& rows, const backend::Thin& columns,
                 const backend::Matrix& to, cudaStream_t stream);
void orthogonalise(const backend::Thin& vectors, cudaStream_t stream);

// ---- checksum.cu --------------------------------------------------------------------------------

/// The sums of blocks of crc_block_words words (checksum.hpp), the first of which may have fewer:
/// sums[i] is the block's words as a polynomial, without CRC-32C's last factor x^32.
void crc_sums(const void* words, std::size_t count, std::uint32_t* sums, cudaStream_t stream);

// ---- average.cu ---------------------------------------------------------------------------------

struct NormArgs {
  const Chunk* chunks;              ///< of all slices, in order
  const std::size_t* first_chunks;  ///< per slice, and one more: the number of chunks
  std::size_t first_slice = 0, slices = 0;
  std::size_t first_chunk = 0, chunk_count = 0;  ///< of these slices
  const float* values;                           ///< a whole part of the arena
  double* chunk_sums;                            ///< scratch, one for each chunk of all
  double* slice_sums;                            ///< sums of squares, one for each slice of all
};
/// The sums of squares of slices [first_slice, first_slice + slices).
void slice_squares(const NormArgs& args, cudaStream_t stream);
/// What rules with trust ratios share.
struct TrustArgs {
  const float* adaptive;  ///< per slice: 1, or 0 for a trust ratio of 1
  /// Sums of squares per slice: of the weights, and of the gradients or LAMB's steps.
  const double *weight_sums, *step_sums;
  float* ratios;  ///< per slice: written; 0 for one that is not adaptive
};
/// LARS: as sgd_update, with each slice's rate times its trust ratio (optim/lars.hpp).
struct LarsArgs {
  float coefficient = 0, epsilon = 0;
  optim::LarsMomentum form = optim::LarsMomentum::inside;
  TrustArgs trust;
};
void lars_update(const UpdateArgs& args, const LarsArgs& lars, cudaStream_t stream);

/// LAMB (optim/lamb.hpp), in two kernels, between which the sums of squares of weights and steps
/// are made: lamb_moments() puts the steps, without lr and trust ratio, in place of the gradients.
struct LambArgs {
  float beta2 = 0, epsilon = 0;
  float *steps, *second_moments;  ///< steps: the gradients of UpdateArgs
  TrustArgs trust;                ///< for lamb_update()
};
void lamb_moments(const UpdateArgs& args, const LambArgs& lamb, cudaStream_t stream);
void lamb_update(const UpdateArgs& args, const LambArgs& lamb, cudaStream_t stream);

/// DeviceScalars::trust from the ratios of `slices` slices, unless the step is skipped.
void gather_trust(const float* ratios, std::size_t slices, DeviceScalars* scalars,
                  cudaStream_t stream);

/// From the sums of squares of all gradients: clipped_norm, and inverse_scale times the factor that
/// brings them down to `limit`. scaled: inverse_scale holds the loss scale of this step, else 1.
void clip(const double* slice_sums, std::size_t slices, float limit, bool scaled,
          DeviceScalars* scalars, cudaStream_t stream);

struct AverageArgs {
  std::size_t count = 0;  ///< floats of the whole arena, a multiple of 4
  float *weights, *averages;
  void* copies;  ///< of the weights, in `storage`; nullptr in fp32
  Storage storage = Storage::fp32;
  const DeviceScalars* scalars;
};
/// averages += average_share * (weights - averages), unless the step is skipped.
void update_averages(const AverageArgs& args, cudaStream_t stream);
/// Exchanges the two, and writes the copies.
void swap_averages(const AverageArgs& args, cudaStream_t stream);

}  // namespace lockstep::cuda
