#include "lockstep/backend/cross_entropy.hpp"
#include "lockstep/backend/output_loss.hpp"
#include "ports/cuda/kernels/vector.cuh"

// Loss, metrics and the gradient of the logits, of each task: one warp per row, in double, like the
// CPU.
namespace lockstep::cuda {

namespace {

constexpr int warp = 32;
constexpr int square = warp * warp;  // threads of a block that sums lines
constexpr unsigned all_lanes = 0xffffffffu;

// The butterfly adds the same pairs in every lane, so that all lanes have the same bits.
__device__ double warp_sum(double v) {
  for (int step = warp / 2; step > 0; step /= 2) v += __shfl_xor_sync(all_lanes, v, step);
  return v;
}
__device__ int warp_sum(int v) {
  for (int step = warp / 2; step > 0; step /= 2) v += __shfl_xor_sync(all_lanes, v, step);
  return v;
}
__device__ double warp_max(double v) {
  for (int step = warp / 2; step > 0; step /= 2) v = fmax(v, __shfl_xor_sync(all_lanes, v, step));
  return v;
}

/// What a step's gradients are multiplied by.
__device__ double scale_of(const DeviceScalars& scalars) {
  return static_cast<double>(scalars.step.gradient_scale) *
         static_cast<double>(scalars.loss_scale.scale);
}

__device__ void skip_row(const LossInput& in, std::size_t row, int lane, DeviceMetrics* row_metrics,
                         float* dlogits) {
  if (lane == 0) row_metrics[row] = {};
  if (!dlogits) return;
  for (int k = lane; k < in.classes; k += warp) dlogits[row * in.classes + k] = 0;
}

__global__ void __launch_bounds__(block_threads)
    class_loss_kernel(LossInput in, const DeviceScalars* scalars, DeviceMetrics* row_metrics,
                      float* dlogits) {
  const std::size_t row = thread_index() / warp;
  const int lane = static_cast<int>(threadIdx.x % warp);
  if (row >= in.rows) return;
  float* logits = in.logits + row * in.classes;
  const backend::arithmetic::OutputWeights weights{in.weights};
  double highest = -INFINITY, all = 0, weight_sum = 0;
  for (int k = lane; k < in.classes; k += warp) {
    const float logit = logits[k] + in.bias[k];
    logits[k] = logit;
    highest = fmax(highest, static_cast<double>(logit));
    all += weights.of(k) * static_cast<double>(logit);
    weight_sum += weights.of(k);
  }
  const data::Target target = in.targets != nullptr ? in.targets[row] : data::Target{};
  if (target.label_a < 0) return skip_row(in, row, lane, row_metrics, dlogits);
  __syncwarp();  // wait for the row's logits: all lanes read those of the labels
  highest = warp_max(highest);
  double sum = 0;
  int better = 0;
  const float its_own = logits[target.label_a];
  for (int k = lane; k < in.classes; k += warp) {
    sum += exp(static_cast<double>(logits[k]) - highest);
    better += backend::arithmetic::outranks(k, logits[k], target.label_a, its_own) ? 1 : 0;
  }
  const double log_sum = highest + log(warp_sum(sum));
  const int place = warp_sum(better);
  const std::int32_t other = target.label_b < 0 ? target.label_a : target.label_b;
  all = warp_sum(all);
  weight_sum = warp_sum(weight_sum);
  const auto wanted =
      backend::arithmetic::wanted(target.label_a, other, target.mix, in.smoothing,
                                  static_cast<std::size_t>(in.classes), weights, weight_sum);
  if (lane == 0)
    row_metrics[row] = {
        backend::arithmetic::cross_entropy(wanted, log_sum, its_own, logits[other], all),
        1u,
        place < 1 ? 1u : 0u,
        place < 5 ? 1u : 0u,
        {}};
  if (!dlogits) return;
  const double scale = scale_of(*scalars);
  for (int k = lane; k < in.classes; k += warp)
    dlogits[row * in.classes + k] =
        backend::arithmetic::logit_gradient(wanted, k, logits[k], log_sum, scale, weights.of(k));
}

/// Of labels and values: each output is judged alone.
__global__ void __launch_bounds__(block_threads)
    output_loss_kernel(LossInput in, const DeviceScalars* scalars, DeviceMetrics* row_metrics,
                       float* dlogits) {
  const std::size_t row = thread_index() / warp;
  const int lane = static_cast<int>(threadIdx.x % warp);
  if (row >= in.rows) return;
  const bool counts = in.targets != nullptr && in.targets[row].label_a >= 0;
  const backend::arithmetic::OutputRule rule{in.task, in.smoothing, in.delta};
  const backend::arithmetic::OutputWeights positive{in.weights};
  const double share = 1 / static_cast<double>(in.classes);
  const double scale = scale_of(*scalars) * share;
  double loss = 0, sums[3] = {};
  for (int k = lane; k < in.classes; k += warp) {
    const std::size_t at = row * in.classes + k;
    const float logit = in.logits[at] + in.bias[k];
    in.logits[at] = logit;
    backend::arithmetic::CountedOutput of;
    if (counts) of = backend::arithmetic::judge_output(rule, logit, in.wanted[at], positive.of(k));
    loss += of.loss;
    for (int i = 0; i < 3; ++i) sums[i] += of.sums[i];
    if (dlogits) dlogits[at] = static_cast<float>(scale * of.gradient);
  }
  loss = warp_sum(loss) * share;
  for (double& sum : sums) sum = warp_sum(sum);
  if (lane == 0) row_metrics[row] = {loss, counts ? 1u : 0u, 0, 0, {sums[0], sums[1], sums[2]}};
}

__device__ void add(const DeviceMetrics& more, DeviceMetrics& to) {
  to.loss += more.loss;
  to.rows += more.rows;
  to.top1 += more.top1;
  to.top5 += more.top5;
  for (int i = 0; i < 3; ++i) to.sums[i] += more.sums[i];
}

/// One block sums all rows, in one order.
__global__ void add_metrics_kernel(const DeviceMetrics* rows, std::size_t count,
                                   DeviceMetrics* metrics) {
  __shared__ DeviceMetrics partial[block_threads];
  DeviceMetrics mine{};
  for (std::size_t r = threadIdx.x; r < count; r += block_threads) add(rows[r], mine);
  partial[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) add(partial[threadIdx.x + half], partial[threadIdx.x]);
    __syncthreads();
  }
  if (threadIdx.x == 0) add(partial[0], *metrics);
}

/// A block takes 32 classes; each of its 32 lines takes every 32nd row.
__global__ void __launch_bounds__(square)
    bias_gradient_kernel(const float* dlogits, std::size_t rows, int classes, bool accumulate,
                         float* dbias) {
  __shared__ double partial[warp][warp];
  const int k = static_cast<int>(blockIdx.x) * warp + static_cast<int>(threadIdx.x);
  double sum = 0;
  if (k < classes)
    for (std::size_t r = threadIdx.y; r < rows; r += warp)
      sum += static_cast<double>(dlogits[r * classes + k]);
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || k >= classes) return;
  sum = accumulate ? static_cast<double>(dbias[k]) : 0;
  for (int line = 0; line < warp; ++line) sum += partial[line][threadIdx.x];
  dbias[k] = static_cast<float>(sum);
}

}  // namespace

void loss(const LossInput& in, const DeviceScalars* scalars, DeviceMetrics* row_metrics,
          DeviceMetrics* metrics, float* dlogits, cudaStream_t stream) {
  if (in.task == data::Task::classes)
    launch("class_loss_kernel", class_loss_kernel, blocks_for(in.rows * warp), block_threads,
           stream, in, scalars, row_metrics, dlogits);
  else
    launch("output_loss_kernel", output_loss_kernel, blocks_for(in.rows * warp), block_threads,
           stream, in, scalars, row_metrics, dlogits);
  launch("add_metrics_kernel", add_metrics_kernel, 1, block_threads, stream, row_metrics, in.rows,
         metrics);
}

void bias_gradient(const float* dlogits, std::size_t rows, int classes, bool accumulate,
                   float* dbias, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((classes + warp - 1) / warp);
  launch("bias_gradient_kernel", bias_gradient_kernel, blocks, dim3(warp, warp), stream, dlogits,
         rows, classes, accumulate, dbias);
}

}  // namespace lockstep::cuda
