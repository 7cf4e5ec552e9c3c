#pragma once

// Why compile and run, not one virtual call per kernel. oneDNN and cuDNN do not match call by call.
// They fuse different things and want different layouts. A backend that sees the whole network can
// choose.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/backend/precision.hpp"
#include "lockstep/backend/recompute.hpp"
#include "lockstep/backend/winograd.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/nn/lines.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/optim/rule.hpp"

namespace lockstep::backend {

class NormSpan;
class TileGroup;

/// One step of a tape, in order. `final_slices`: the slices that may be reduced and updated once it
/// has run, because their gradient is final and nothing later in the tape reads their weights.
struct TapeStep {
  std::string name;
  std::function<void()> run;
  std::vector<std::size_t> final_slices;
  std::string engine = {};  ///< of a library, which computes the step, as it names it; or empty
  /// What a rank without rows does in place of `run`, so that others do not wait for it; or empty.
  std::function<void()> join = {};
};
using Tape = std::vector<TapeStep>;

/// What a network is trained to say, and how a row is judged: see row_loss().
struct LossSpec {
  data::Task task = data::Task::classes;
  float smoothing = 0;  ///< of classes and labels
  float delta = 0;      ///< of values, in deviations: Huber's; 0: the squared difference
  /// Of each class; of each label, where it applies. Empty: 1.
  std::vector<float> weights = {};
};

struct ProgramSpec {
  std::size_t batch = 1;  ///< rows of one micro-batch
  /// CPU backend: parts of the batch that threads share, on which the bits of gradients depend; 0:
  /// one for each thread.
  std::size_t lanes = 0;
  Precision precision = Precision::fp32;
  bool training = true;  ///< else forward only, with running statistics
  /// Set by Backend::compile(), for frozen layers: forward only, in turn with another program that
  /// trains. Its values have a separate block, so that what it makes of its weights, which never
  /// change, stays there.
  bool frozen = false;
  /// Micro-batches of this program are in flight together with those of another one for other rows:
  /// what it keeps shares no memory with that.
  bool own_memory = false;
  /// Set by Backend::plan(): the program only says what memory it would take. It has none, and
  /// nothing to run.
  bool planned = false;
  LossSpec loss;
  data::Element element = data::Element::u8;  ///< of the images in a batch
  std::vector<float> mean, stddev;            ///< per channel: see data::DataSetInfo
  std::optional<float> no_data;               ///< see data::DataSetInfo; such values enter as 0
  data::Shaping shaping;                      ///< of the values, before mean and deviation
  /// Use only library routines that give the same bits each time; the CPU backend has no others.
  bool deterministic = false;
  /// Training in fp16 on a GPU: each convolution also computes what it can of the batch norms
  /// before and after it.
  bool fuse_norms = false;
  /// On a GPU: choose each convolution's engine by measuring, and keep the choices in this file.
  /// Empty: take the library's own choice. Contradicts `deterministic`.
  std::string plan_cache;
  bool writes_plan_cache = true;  ///< else it only reads the file: another rank measures the same
  /// CPU backend: which convolutions use Winograd's algorithm.
  Winograd winograd;
  /// Its parameters keep an average of the weights: counted where memory is planned.
  bool keeps_average = false;
  /// The run's rule has second moments: counted where memory is planned.
  bool keeps_second_moments = false;
  /// What updates by the run's rule take of the device's memory: counted where memory is planned.
  std::size_t update_bytes = 0;
  /// What the run's exchange takes of the device's memory: counted where memory is planned.
  std::size_t exchange_bytes = 0;
  /// In training: the ranks with which each batch norm shares its statistics; null: it has its own.
  /// REQUIRES: Backend::shares_norms(); and each of these ranks runs, or joins, the same steps of
  /// the same network's tapes in the same order.
  NormSpan* norm_span = nullptr;
  /// In training: which lines of each image's maps this program has, where the ranks of `tiles`
  /// have the others; all, for one tile. The batch has whole images. All tiles make the logits and
  /// the loss, and the first one metrics and the last layer's gradients, so that sums over the
  /// ranks are those of the rows.
  nn::TilePlace tile;
  /// REQUIRES: not null where the tile is not whole, except to plan or to measure.
  TileGroup* tiles = nullptr;
  /// What backward makes again instead of keeping it; the same bits in any case.
  Recompute recompute;
  /// Micro-batches in flight: how many may have run forward before their backward. What a
  /// micro-batch keeps in between takes memory in each slot; the rest is shared.
  std::size_t slots = 1;
  /// 0: backward makes all gradients. Else it leaves the convolutions' weight gradients to
  /// Program::weight_gradients(), of at most that many micro-batches at a time, in their order.
  std::size_t weights_later = 0;
  /// The network of which this is a stage: its bits are those of the whole one, and on the clock
  /// backend its pace is a part of that one's. Null: the network is whole.
  const nn::Network* whole = nullptr;
};

/// The two numbers a and b of a channel by which its values v enter the network: as v * a + b where
/// data::enter_as_bytes(), else as (v - a) * b.
inline std::pair<float, float> entry_of(const ProgramSpec& spec, std::size_t channel) {
  const float mean = spec.mean[channel], deviation = spec.stddev[channel];
  if (data::enter_as_bytes(spec.element, spec.shaping)) {
    const auto by = arithmetic::pixel_scale(mean, deviation);
    return {by.scale, by.shift};
  }
  const auto by = arithmetic::element_entry(mean, deviation);
  return {by.mean, by.inverse};
}

/// What one image of a batch takes.
inline std::size_t image_bytes(const nn::Network& network, const ProgramSpec& spec) {
  return network.input.count() * data::bytes_of(spec.element);
}

/// Sums over the rows that are not padding.
struct Metrics {
  double loss = 0;  ///< a sum, not a mean; includes label smoothing if trained with it
  std::uint64_t rows = 0, top1 = 0, top5 = 0;  ///< the last two: of classes
  /// Of known labels: said rightly, said wrongly, missed, where a logit above 0 says one. Of known
  /// values: their number, and the sum of the squared differences, in deviations.
  std::array<double, 3> sums = {};
  Metrics& operator+=(const Metrics& more);
};

/// The same, rounded so that sums of such figures are exact, and so the same in any order, while
/// they are below 2^29: the loss and `sums` become multiples of 2^-24.
Metrics in_any_order(Metrics metrics);

/// Bytes of memory that a program takes in addition to the parameters.
struct MemoryPlan {
  std::size_t activations = 0;  ///< all intermediate values, after planning by liveness
  std::size_t without_reuse = 0;
  std::size_t workspace = 0;  ///< libraries' scratch, weight copies
  double made_again = 0;      ///< share of forward's operations that backward repeats
};

/// What passes one boundary of a stage for one micro-batch, in the program's own format. The two
/// stages at a boundary have the same sizes, if they have the same batch and precision. On a GPU
/// the memory is the device's, and the tapes use it in the order of the compute stream.
struct Boundary {
  std::span<std::byte> values;
  /// One after the other from each reader of the values, and not yet added up, so that the sum is
  /// rounded as in the whole network.
  std::span<std::byte> gradients;
};

/// A network compiled for one micro-batch size and precision. To run it: load a batch, then run
/// every step of forward(), then (in training) every step of backward(). The batch must stay alive
/// until backward has finished.
class Program {
 public:
  virtual ~Program() = default;
  /// What a port has compiled and runs backward: itself, or its part after frozen layers.
  virtual Program& trained() { return *this; }
  virtual const ProgramSpec& spec() const = 0;
  /// Which of the spec's slots all later calls are about, until the next call; 0 at first. A tape
  /// runs to its end before another slot's begins. Throws Error for a slot that does not exist.
  virtual void select(std::size_t slot) = 0;
  /// In training the batch must have targets, where the network has a loss.
  virtual void load(const data::Batch& batch) = 0;
  /// Starts to copy the next batch to the device while the current one is processed. The batch must
  /// stay alive until it has been loaded and backward has finished. The batch that is already
  /// loaded is not affected.
  virtual void prefetch(const data::Batch&) {}
  /// For tests: loads an input that is already normalised, [batch, height, width, channels].
  virtual void load_normalised(std::span<const float> images,
                               std::span<const data::Target> targets) = 0;
  /// Which of the program's places holds the loaded batch: 0 or 1. What a Repeater has recorded
  /// always reads the place that was current then.
  virtual std::size_t input_place() const { return 0; }
  /// Makes this the current place, for the next load to go to the other one. The loaded batch is
  /// lost. REQUIRES: no batch was given to prefetch() since the last load.
  virtual void set_input_place(std::size_t) {}
  virtual void set_scalars(const optim::StepScalars& scalars) = 0;
  virtual const Tape& forward() const = 0;
  /// accumulate: add to the gradients instead of replacing them.
  virtual const Tape& backward(bool accumulate) const = 0;
  /// With ProgramSpec::weights_later: what backward has left; else empty. The slot of its
  /// micro-batch stays in use until then.
  virtual const Tape& weight_gradients(bool accumulate) const;
  /// A stage's boundaries, for the selected slot; empty where the network has none. Before forward
  /// the caller fills received().values, and before backward sent().gradients; the other two are
  /// filled by forward and backward. received().values must stay until all gradients are made.
  virtual Boundary received() { return {}; }
  virtual Boundary sent() { return {}; }
  virtual Metrics take_metrics() = 0;  ///< since the last call; synchronises on a GPU
  /// The logits of the last forward: [batch, classes].
  virtual void copy_logits(std::span<float> logits) const = 0;
  virtual MemoryPlan memory() const = 0;
};

}  // namespace lockstep::backend
