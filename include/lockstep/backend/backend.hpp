#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/backend/precision.hpp"
#include "lockstep/backend/rates.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep {

/// How the optimizer changes weights; per slice because weight decay may spare biases and batch
/// norm.
struct UpdateRule {
  float momentum = 0.9f;
  bool nesterov = false;
  std::vector<float> weight_decay;  ///< per slice of the arena; ignored for running statistics
};

/// What changes from step to step; lives in device memory on a GPU.
struct StepScalars {
  float lr = 0;
  float gradient_scale = 1;    ///< 1 / rows of the global batch: multiplies the loss gradient, so
                               ///< that gradients of all ranks and micro-batches simply add up
  float statistics_share = 1;  ///< this rank's rows / rows of the global batch (of one
                               ///< micro-batch): its weight in the averaged running statistics
  bool operator==(const StepScalars&) const = default;
};

enum class Part { weights, gradients, momentum };

using arithmetic::LossScale;

/// The state of a network on one device: three flat buffers with one layout. Running statistics
/// live at the end: in weights the running values, in gradients this step's share of the batch
/// statistics, in momentum nothing.
class Parameters {
 public:
  virtual ~Parameters() = default;
  virtual const nn::ArenaLayout& layout() const = 0;
  virtual float* device_pointer(Part part) = 0;  ///< of the flat buffer; what collectives work on
  /// Between the plain layout of the tensor and the device's own. `plain` has tensor.count()
  /// floats.
  virtual void import_slice(Part part, std::size_t slice, std::span<const float> plain) = 0;
  virtual void export_slice(Part part, std::size_t slice, std::span<float> plain) const = 0;
  /// CRC-32C of weights and momentum as they lie on the device: equal on all ranks or the ranks
  /// have diverged.
  virtual std::uint32_t hash() const = 0;
  /// fp16's dynamic loss scale, part of a training's state; nothing in the other precisions. Waits
  /// for the device.
  virtual std::optional<LossScale> loss_scale() const { return std::nullopt; }
  virtual void set_loss_scale(const LossScale&) {}
};

/// One piece of a tape, in order. `final_slices`: slices whose gradient is final once it has run
/// and whose weights nothing later in the tape reads, so that they may be reduced and updated.
struct TapeStep {
  std::string name;
  std::function<void()> run;
  std::vector<std::size_t> final_slices;
};
using Tape = std::vector<TapeStep>;

struct ProgramSpec {
  std::size_t batch = 1;  ///< rows of one micro-batch
  Precision precision = Precision::fp32;
  bool training = true;  ///< else forward only, with running statistics
  float label_smoothing = 0;
  std::vector<float> mean, stddev;  ///< per channel, of value / 255
  bool deterministic = false;  ///< keep to library routines that give the same bits each time; the
                               ///< CPU backend has no others
  bool fuse_norms = false;     ///< training in fp16 on a GPU: convolutions take in what they can of
                               ///< the batch norms beside them
};

/// Sums over the rows that were not padding.
struct Metrics {
  double loss = 0;  ///< sum, not mean; with label smoothing as trained
  std::uint64_t rows = 0, top1 = 0, top5 = 0;
};

/// Bytes of memory that a program takes beside the parameters.
struct MemoryPlan {
  std::size_t activations = 0;  ///< all intermediate values, after planning by liveness
  std::size_t without_reuse = 0;
  std::size_t workspace = 0;  ///< libraries' scratch, weight copies
};

/// A network compiled for one micro-batch size and precision. Run: load a batch, then every step of
/// forward(), then (in training) every step of backward(). The batch must stay alive until backward
/// has finished.
class Program {
 public:
  virtual ~Program() = default;
  virtual const ProgramSpec& spec() const = 0;
  virtual void load(const data::Batch& batch) = 0;
  /// Begins to bring the batch that will be loaded next to the device, while the one before it is
  /// worked on; it must stay alive until it was loaded and backward has finished. What has been
  /// loaded already is not disturbed.
  virtual void prefetch(const data::Batch&) {}
  /// For tests: an already normalised input, [batch, height, width, channels].
  virtual void load_normalised(std::span<const float> images,
                               std::span<const data::Target> targets) = 0;
  virtual void set_scalars(const StepScalars& scalars) = 0;
  virtual const Tape& forward() const = 0;
  virtual const Tape& backward(
      bool accumulate) const = 0;  ///< accumulate: add to the gradients instead of replacing them
  virtual Metrics take_metrics() = 0;  ///< since the last call; synchronises on a GPU
  virtual void copy_logits(
      std::span<float> logits) const = 0;  ///< of the last forward: [batch, classes]
  virtual MemoryPlan memory() const = 0;
};

/// A way to compute: cpu (oneDNN) or cuda (cuDNN). Everything that differs between them is behind
/// this class.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  ///< "cpu" or "cuda"
  virtual std::string description()
      const = 0;  ///< libraries, instruction set, threads: what bit-exactness depends on
  virtual Device& device() = 0;
  /// Before anything is allocated for them: throws InputError when this network's parameters and
  /// this program do not fit into the device's memory, naming what is needed, what is there and the
  /// largest micro-batch that fits. The CPU backend finds out when it allocates.
  virtual void require_fit(const nn::Network&, const ProgramSpec&) {}
  /// How long a training step takes at rates that are measured now; nothing where nobody knows.
  virtual std::optional<Floor> floor(const nn::Network&, const ProgramSpec&) {
    return std::nullopt;
  }
  virtual std::unique_ptr<Parameters> make_parameters(const nn::Network& network,
                                                      Precision precision) = 0;
  /// `parameters` must outlive the program and have been made for the same network.
  virtual std::unique_ptr<Program> compile(const nn::Network& network, const ProgramSpec& spec,
                                           Parameters& parameters) = 0;
  /// In a precision with a loss scale: once all gradients of a step are reduced and before its
  /// first update. If any of them overflowed, this step's update() and update_statistics() will
  /// change nothing; adapts the scale. Elsewhere nothing, and each bucket may be updated as it
  /// arrives.
  virtual void judge_gradients(Parameters&) {}
  /// Updates the learned slices [first, last) with their (reduced) gradients.
  virtual void update(Parameters& parameters, const UpdateRule& rule, const StepScalars& scalars,
                      std::size_t first, std::size_t last) = 0;
  /// running = (1 - momentum)^micro_batches * running + (reduced) statistics of the step.
  virtual void update_statistics(Parameters& parameters, std::size_t micro_batches) = 0;
};

struct CpuBackendSpec {
  /// Where the compute threads run; one set each. Empty: one thread, unbound.
  std::vector<std::vector<int>> thread_cpus;
  /// Bytes of activations that a thread takes at a time, to find them in its second-level cache
  /// again: 1 or 2 MB on the machines that train on CPUs. A fixed number, so that the cut, and with
  /// it the order of the sums, does not depend on the machine.
  std::size_t chunk_bytes = std::size_t{1} << 20;
};
std::unique_ptr<Backend> make_cpu_backend(const CpuBackendSpec& spec);

std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace lockstep
