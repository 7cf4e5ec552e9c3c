#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"
#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/units/runner.hpp"

// Why the host does not wait for a GPU's steps. Each wait would leave the device idle. So a step is
// only put into the streams. Its metrics, loss scale and norm go to a separate place in the host's
// memory, which the device writes to, and its times stay in events. The run reads them after at
// most 64 steps or a quarter of a second, at the end of an epoch, and before an audit, a checkpoint
// and a stop: the same steps on all ranks, as rank 0 proposed when they last read. The host stays
// two steps ahead and holds their batches. A device that runs as the host calls is read after each
// step.

namespace lockstep::cuda {

/// Places in the host's memory to which the device writes what steps leave, until the host reads
/// it. **Thread safety:** none.
class StepPlaces {
 public:
  /// One place, for the host and for the device.
  struct Place {
    const StepWords* here = nullptr;
    StepWords* there = nullptr;
  };
  /// Allocates only when more places than ever before are in use.
  Place take();
  void give_back(const Place& place) { free_.push_back(place); }

 private:
  std::vector<Owned<void*, cudaFreeHost>> blocks_;
  std::vector<Place> free_;
};

/// The figures in `places`, in order: the metrics add up, the state is that of the last one.
backend::StepFigures figures_in(const std::vector<StepPlaces::Place>& places, bool has_scale);

backend::Metrics metrics_of(const DeviceMetrics& sums);

/// Memory of the device that all programs of a backend share. It is as large as the largest program
/// so far needs: nothing in it outlives a step, and only one program runs at a time.
class SharedMemory {
 public:
  std::shared_ptr<DeviceBuffer> of_size(std::size_t bytes, const char* what);
  std::size_t size() const { return memory_ ? memory_->size() : 0; }
  /// Bytes that of_size() would have to allocate.
  std::size_t lacking(std::size_t bytes) const {
    return memory_ && bytes <= memory_->size() ? 0 : bytes;
  }

 private:
  std::shared_ptr<DeviceBuffer> memory_;
};

/// What the programs of one backend share.
struct ProgramShares {
  CudaDevice& device;
  ConvPlanner& planner;
  SharedMemory &block, &workspace;
};

/// A network on a GPU. Each step of the tape puts kernels into the compute stream and returns.
class CudaProgram final : public backend::Program {
 public:
  /// Throws InputError when the GPU's memory is too small, naming the memory needed and a batch
  /// that fits.
  CudaProgram(const nn::Network& network, const backend::ProgramSpec& spec,
              CudaParameters& parameters, const ProgramShares& shares);
  const backend::ProgramSpec& spec() const override { return spec_; }
  void select(std::size_t slot) override;
  void prefetch(const data::Batch& batch) override;
  void load(const data::Batch& batch) override;
  void load_normalised(std::span<const float> images,
                       std::span<const data::Target> targets) override {
    input_.load_normalised(images, targets);
  }
  std::size_t input_place() const override { return input_.place(); }
  void set_input_place(std::size_t place) override { input_.set_place(place); }
  void set_scalars(const optim::StepScalars& scalars) override;
  const backend::Tape& forward() const override { return forward_; }
  const backend::Tape& backward(bool accumulate) const override { return backward_[accumulate]; }
  backend::Boundary received() override { return boundary(plan_.received); }
  backend::Boundary sent() override { return boundary(plan_.sent); }
  backend::Metrics take_metrics() override;
  DeviceMetrics* metrics() const { return context_.metrics; }
  void copy_logits(std::span<float> logits) const override;
  backend::MemoryPlan memory() const override {
    return {plan_.block, plan_.without_reuse, plan_.workspace, plan_.made_again};
  }
  const nn::Network& network() const { return network_; }
  const ProgramPlan& plan() const { return plan_; }
  /// For tests: where a place of the program's first slot is, in forward or after it; nullptr for
  /// `nowhere`.
  void* address(Place place, bool after_forward) const {
    return place == nowhere ? nullptr : context_.block + plan_.offset(place, after_forward);
  }
  /// For tests: fills all memory that the program writes with NaN.
  void poison();

 private:
  void make_tapes();
  backend::TapeStep placed(backend::TapeStep step, bool after_forward);
  backend::Boundary boundary(const BoundaryPlaces& places) const;

  nn::Network network_;
  backend::ProgramSpec spec_;
  CudaParameters& parameters_;
  CudaDevice& device_;
  ProgramPlan plan_;
  std::shared_ptr<DeviceBuffer> block_, workspace_;
  InputBatch input_;
  DeviceBuffer metrics_, chunks_, tickets_;
  Context context_;
  std::vector<std::optional<optim::StepScalars>> scalars_;  // by slot
  std::vector<std::unique_ptr<Runner>> runners_;
  backend::Tape forward_, backward_[2];
};

}  // namespace lockstep::cuda
