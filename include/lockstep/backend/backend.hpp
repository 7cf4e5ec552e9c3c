#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/pace.hpp"
#include "lockstep/backend/parameters.hpp"
#include "lockstep/backend/precision.hpp"
#include "lockstep/backend/program.hpp"
#include "lockstep/backend/rates.hpp"
#include "lockstep/backend/vectors.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/optim/rule.hpp"

namespace lockstep::backend {

/// What a step leaves for the host to read.
struct StepFigures {
  Metrics metrics;
  std::optional<LossScale> loss_scale = std::nullopt;      ///< after the step
  double clipped_norm = 0;                                 ///< as Parameters::clipped_norm()
  std::optional<optim::TrustRatios> trust = std::nullopt;  ///< as Parameters::trust_ratios()
};
/// Memory of a training's step in bytes, as the backend would place it.
struct PlannedMemory {
  std::size_t parameters = 0;  ///< weights, gradients and momentum
  MemoryPlan program;
  std::size_t total() const { return parameters + program.activations + program.workspace; }
};
/// Reads the figures of one step. Call it once.
using ReadFigures = std::function<StepFigures()>;

/// A backend's description without its number of threads, for what does not depend on them.
std::string without_threads(const std::string& description);

/// One way to compute: cpu (oneDNN) or cuda (cuDNN), or to wait instead: clock. All differences
/// between them are in the implementations of this class. Networks may have frozen nodes: what
/// takes a network cuts it after them, and asks the port about each part.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  ///< "cpu", "cuda" or "clock"
  /// Libraries, instruction set, threads: everything that bit-exactness depends on.
  virtual std::string description() const = 0;
  virtual std::size_t threads() const { return 1; }  ///< that compute
  virtual device::Device& device() = 0;
  virtual Vectors& vectors() = 0;
  /// Call it before anything is allocated for the two: throws InputError when this network's
  /// parameters and this program do not fit into the device's memory, with the memory needed, the
  /// memory available and the largest micro-batch that fits. The CPU backend finds out when it
  /// allocates.
  void require_fit(const nn::Network& network, const ProgramSpec& spec);
  /// True where plan() can be called.
  virtual bool plans() const { return false; }
  /// What the parameters and this program would take, to the byte. Allocates none of it, and needs
  /// no other ranks: of tiles, only ProgramSpec::tile. Throws InputError as compile() does.
  /// REQUIRES: plans().
  PlannedMemory plan(const nn::Network& network, const ProgramSpec& spec);
  /// How long a training step takes at rates measured now; nothing where they cannot be measured.
  std::optional<Floor> floor(const nn::Network& network, const ProgramSpec& spec);
  /// True when programs of this precision can use Winograd's algorithm on request. cuDNN chooses
  /// its algorithms itself.
  virtual bool offers_winograd(Precision) const { return false; }
  /// True when training programs can share batch norm's statistics with other ranks
  /// (ProgramSpec::norm_span).
  virtual bool shares_norms() const { return false; }
  /// True when training programs can have some lines of each image (ProgramSpec::tile).
  virtual bool shares_images() const { return false; }
  /// Measures, in some tenths of a second, which passes of the program's convolutions Winograd's
  /// algorithm makes faster here, and lists them. REQUIRES: offers_winograd().
  virtual Winograd measure_winograd(const nn::Network&, const ProgramSpec&) { return {}; }
  /// Runs these programs of a network once, with as little memory as recomputation reaches, and
  /// returns the bytes that this process then has in memory, but for parameters, values and images.
  /// What libraries ask for as scratch says little: some touch a tenth of it. Nothing where a limit
  /// of memory holds for a device.
  std::optional<std::size_t> measure_memory(const nn::Network& network,
                                            std::span<const ProgramSpec> programs);
  std::unique_ptr<Parameters> make_parameters(const nn::Network& network, Precision precision,
                                              Keeps keeps = Keeps::training);
  /// `parameters` must outlive the program and be made for the same network. Those that keep
  /// weights only are for programs that do not train.
  std::unique_ptr<Program> compile(const nn::Network& network, const ProgramSpec& spec,
                                   Parameters& parameters);
  /// Puts the figures of the step that ends here aside: the metrics of the programs that ran in it,
  /// taken from them, and the state of `parameters`. A device with steps_ahead() does not make the
  /// host wait, and what is returned may be called once the compute stream has come here; another
  /// one takes the figures at once.
  virtual ReadFigures put_aside(std::vector<Program*> ran, const Parameters& parameters);
  /// Call it once all gradients of a step are reduced and before its first update. In a precision
  /// with a loss scale it adapts the scale; if any gradient overflowed, this step's update() and
  /// update_statistics() change nothing. In other precisions it does nothing, and each bucket may
  /// be updated as it arrives. `largest`: on the device, what decides in place of the gradients
  /// where these differ between ranks: the step overflows if it is infinite or NaN.
  virtual void judge_gradients(Parameters& parameters, const float* largest = nullptr) {
    static_cast<void>(parameters);
    static_cast<void>(largest);
  }
  /// The Euclidean norm of each slice of a part, without padding, as it is stored: fp16's gradients
  /// include the loss scale. The order of the sums depends on the layout alone, so equal values
  /// give equal bits on any rank and with any number of threads. Waits for the device.
  virtual std::vector<double> norms(const Parameters& parameters, Part part) = 0;
  /// Call it once all gradients are reduced and judged, and before the first update. If the norm of
  /// all learned gradients together, without the loss scale, is above `limit`, this step's updates
  /// use them times limit / norm. Does not wait for the device.
  virtual void clip_gradients(Parameters& parameters, float limit) = 0;
  /// The same in two calls, for parameters that are a part of a network's: the squares of the
  /// gradients by slice, whose sum over all slices of the network, in their order, is that of the
  /// norm; and the clipping by this norm. Only on CPUs.
  virtual std::vector<double> gradient_squares(const Parameters& parameters);
  virtual void clip_by_norm(Parameters& parameters, float limit, double norm);
  /// Updates the learned slices [first, last) with their (reduced) gradients, which are then used
  /// up: some rules compute in their place. REQUIRES: second moments, for a rule that has them.
  virtual void update(Parameters& parameters, const optim::UpdateRule& rule,
                      const optim::StepScalars& scalars, std::size_t first, std::size_t last) = 0;
  /// running = (1 - momentum)^micro_batches * running + (reduced) statistics of the step.
  virtual void update_statistics(Parameters& parameters, std::size_t micro_batches) = 0;
  /// Moves the average by `share` (0 to 1) of its distance towards weights and running statistics.
  /// Changes nothing in a step whose gradients overflowed. REQUIRES: has_average().
  virtual void update_average(Parameters& parameters, float share) = 0;
  /// Exchanges weights and running statistics with their averages, for an evaluation; a second call
  /// restores both, bit for bit. REQUIRES: has_average().
  virtual void swap_average(Parameters& parameters) = 0;
  /// Gives memory that only programs use, while they run, back to the system; the next run takes it
  /// again. Optional.
  virtual void release_idle_memory() {}

 protected:
  // The same for a network without frozen nodes.
  virtual void require_part_fit(const nn::Network&, const ProgramSpec&) {}
  virtual std::optional<Floor> floor_of_part(const nn::Network&, const ProgramSpec&) {
    return std::nullopt;
  }
  virtual std::optional<std::size_t> measure_part_memory(const nn::Network&,
                                                         std::span<const ProgramSpec>) {
    return std::nullopt;
  }
  virtual std::unique_ptr<Parameters> make_part_parameters(const nn::Network& network,
                                                           Precision precision, Keeps keeps) = 0;
  virtual std::unique_ptr<Program> compile_part(const nn::Network& network, const ProgramSpec& spec,
                                                Parameters& parameters) = 0;

 private:
  /// Of all the run's programs of frozen layers, once they were measured: each has its own values.
  std::size_t all_frozen_bytes_ = 0;
};

struct CpuBackendSpec {
  /// The CPUs of the compute threads, one set for each. Empty: one thread, unbound.
  std::vector<std::vector<int>> thread_cpus;
  /// Bytes of activations that a thread handles at a time, so that they stay in its second-level
  /// cache: 1 or 2 MB on the machines that train on CPUs. A fixed number, so that the cut, and with
  /// it the order of the sums, does not depend on the machine.
  std::size_t chunk_bytes = std::size_t{1} << 20;
};
std::unique_ptr<Backend> make_cpu_backend(const CpuBackendSpec& spec);

std::unique_ptr<Backend> make_cuda_backend(int device);

/// Computes nothing: the tape's steps take the time that `pace` says, as on a device that works
/// while the host continues. Gradients are zero, but they are real memory for collectives, small
/// however large the network is. So ranks, data, communication and files are rehearsed, and
/// nothing is trained: is_rehearsal().
std::unique_ptr<Backend> make_clock_backend(const Pace& pace);

}  // namespace lockstep::backend
