#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/program.hpp"
#include "lockstep/backend/winograd.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cpu/team.hpp"
#include "ports/cpu/units/boundary_runner.hpp"
#include "ports/cpu/units/head_runner.hpp"

namespace lockstep::cpu {

/// One block of memory for the values of all programs of a backend. It is as large as the largest
/// program so far needs. A program's values do not outlive its step; only the weights that
/// evaluation has folded stay, until another program runs.
class SharedBlock {
 public:
  std::shared_ptr<HostMemory> of_size(std::size_t bytes);
  std::size_t size() const { return size_; }
  /// To be called before a program's forward; `memory` is its block. False when what it left there
  /// may be lost. Programs that were made before the block grew have an older one: only the last
  /// user's keeps its pages.
  bool claim(const void* program, const std::shared_ptr<HostMemory>& memory);
  /// REQUIRES: no program runs.
  void discard();

 private:
  std::size_t size_ = 0;
  std::shared_ptr<HostMemory> block_, used_;
  const void* user_ = nullptr;
};

// A block of a ResNet in forward, on three lanes. Each region ends with the sums that a batch norm
// needs of the whole batch: there all lanes wait for each other. Inside a region a lane takes its
// rows of the batch chunk by chunk (c0, c1, ...) through all units, while a chunk is in its cache.
//
//             region r           region r + 1           region r + 2
//           +------------------+----------------------+-----------------------------+
//    units  | conv1, its sums  | bn1, relu1 -> conv2, | bn2, + skip, relu2 -> conv1 |
//           |                  | its sums             | of the next block, its sums |
//           +------------------+----------------------+-----------------------------+
//    lane 0 | c0 | c1 | c2     | c0 | c1 | c2         | c0 | c1 | c2                |
//    lane 1 | c3 | c4          | c3 | c4              | c3 | c4                     |
//    lane 2 | c5 | c6 | c7     | c5 | c6 | c7         | c5 | c6 | c7                |
//           +------------------+----------------------+-----------------------------+
//                              ^                      ^
//                              mean and deviation     those of bn2
//                              of bn1
//
// relu1 has no place in memory: conv2 makes it from conv1's output, chunk by chunk, and backward
// makes it again. Backward runs the regions from the last to the first, in the same chunks.

/// A network on a CPU. All lanes run the regions one after the other; inside a region each lane
/// takes its chunks of the batch through all units while they are in its cache.
class CpuProgram final : public backend::Program {
 public:
  CpuProgram(const nn::Network& network, const backend::ProgramSpec& spec,
             CpuParameters& parameters, Team& team, SharedBlock& block, std::size_t chunk_bytes);
  const backend::ProgramSpec& spec() const override { return spec_; }
  void select(std::size_t slot) override;
  void load(const data::Batch& batch) override;
  void load_normalised(std::span<const float> images,
                       std::span<const data::Target> targets) override;
  void set_scalars(const optim::StepScalars& scalars) override {
    context_.scalars_of_slot[context_.slot] = scalars;
  }
  const backend::Tape& forward() const override { return forward_; }
  const backend::Tape& backward(bool accumulate) const override { return backward_[accumulate]; }
  const backend::Tape& weight_gradients(bool accumulate) const override {
    return weights_[accumulate];
  }
  backend::Boundary received() override {
    return receive_ ? receive_->boundary() : backend::Boundary{};
  }
  backend::Boundary sent() override { return send_ ? send_->boundary() : backend::Boundary{}; }
  backend::Metrics take_metrics() override {
    return head_ ? head_->take_metrics() : backend::Metrics{};
  }
  void copy_logits(std::span<float> logits) const override;
  backend::MemoryPlan memory() const override { return memory_; }

 private:
  void make_runners();
  void allocate();
  void plan_norm_messages();
  void plan_line_messages();
  void place();
  void make_tapes();
  backend::Tape make_backward(bool accumulate);
  backend::Tape make_weights(bool accumulate);
  std::size_t workspace() const;
  void begin_forward();
  void fold_units(const std::vector<std::size_t>& units) const;
  void run_forward(std::size_t region);
  void run_again(std::size_t region);
  void run_backward(std::size_t region, bool accumulate);
  void take_late();
  void run_weights(std::size_t region, bool accumulate);
  void exchange(NormMessage& message);
  static std::function<void()> joining(NormMessage& message);
  template <class Call>
  void on_lanes(const Call& call) const;
  template <class Call>
  void on_chunks(const Region& region, const Call& call);
  void send(LineMessage& message);
  bool lines_arrived();
  void wait_for_lines();
  bool wait_in_lane(bool leads);

  nn::Network network_;
  backend::ProgramSpec spec_;
  Team& team_;
  SharedBlock& block_;
  Context context_;
  std::unique_ptr<Lifetimes> lifetimes_;
  Image image_;
  std::vector<std::unique_ptr<Runner>> runners_;
  HeadRunner* head_ = nullptr;  // nullptr in a stage without it, like the next two
  ReceiveRunner* receive_ = nullptr;
  SendRunner* send_ = nullptr;
  backend::MemoryPlan memory_;
  /// Of the weights that evaluation has folded. Where memory is short, it folds those of each
  /// region when this runs.
  std::optional<std::uint64_t> folded_version_;
  bool folds_by_region_ = false;
  backend::Tape forward_, backward_[2], weights_[2];
  /// Of weights_later: how many micro-batches have begun backward, and ended it altogether.
  std::size_t begun_ = 0, ended_ = 0;
  std::vector<LineMessage*> awaited_;  ///< from and to other tiles
  std::atomic<bool> lines_there_{true}, lines_lost_{false};
};

/// How a CPU stores a precision. Throws InputError for precisions that CPUs do not have.
Storage storage_of(backend::Precision precision);

/// Cuts the batch into chunks for each region. Each lane gets a run of images, or of bands of
/// images where there are more lanes than rows or the program has a tile, in chunks of about
/// `chunk_bytes` of activations.
std::vector<Region> make_regions(const nn::Network& network, const std::vector<Unit>& units,
                                 const backend::ProgramSpec& spec, std::size_t lanes,
                                 Storage storage,
                                 std::size_t chunk_bytes = backend::CpuBackendSpec{}.chunk_bytes);

/// Cuts the regions of a stage as those of the whole network that have the same units.
void cut_alike(std::vector<Region>& regions, const std::vector<Unit>& units,
               const std::vector<Region>& whole, const std::vector<Unit>& whole_units);

/// As make_regions(), where lanes share the rows: a chunk stands for each lane, and has all rows.
std::vector<Region> share_rows(const std::vector<Unit>& units, std::size_t batch,
                               std::size_t lanes);

/// Measures each pass of each 3 x 3 convolution of a training program both ways, on all lanes and
/// in the program's own chunks, the preparation of the weights included. Lists the passes that
/// Winograd's algorithm makes at least a tenth faster.
backend::Winograd measure_winograd(const nn::Network& network, const backend::ProgramSpec& spec,
                                   Team& team, std::size_t chunk_bytes);

/// What a process that runs these programs has in memory, but for parameters, values and images:
/// itself, the libraries' generated code, and what of their scratch they touch. Bytes.
std::size_t measure_memory(const nn::Network& network, std::span<const backend::ProgramSpec> specs,
                           Team& team, std::size_t chunk_bytes);

}  // namespace lockstep::cpu
