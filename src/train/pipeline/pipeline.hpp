#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/parameters.hpp"
#include "lockstep/backend/program.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/train/pipeline/schedule.hpp"

namespace lockstep::train {

struct PipelineSpec {
  config::PipelineOrder order = config::PipelineOrder::one_f_one_b;
  std::size_t micro_batches = 1;  ///< of a step, at most
  nn::WorkSpec work = {};         ///< by which stages are equal
};

/// A rank's stage of a network that is cut over several ranks, and what it exchanges with the other
/// stages of its replica. A replica computes what one rank would that accumulates the same
/// micro-batches, bit for bit. Values go down and gradients come up on two channels: each is in the
/// order of the schedule, whatever the other one does, so that no order of messages can deadlock.
/// Each receive begins one micro-batch ahead, so that a message travels while the stage computes.
/// One stage alone has all of the network, and no messages.
/// **Thread safety:** none; the main thread uses it.
class Pipeline {
 public:
  Pipeline() = default;  ///< one stage
  /// `whole`: the network. Throws InputError where it has no such cuts, or the communicator no
  /// channels. Collective over `world`, which must outlive this.
  Pipeline(const PipelineSpec& spec, const nn::Network& whole, comm::Communicator& world,
           const comm::GridAxis& stages);

  /// One line about the cuts; empty for one stage.
  std::string describe(const nn::Network& whole) const;
  bool is_whole() const { return axis_.count == 1; }
  bool is_first() const { return axis_.index == 0; }
  bool is_last() const { return axis_.index + 1 == axis_.count; }
  /// The part of `whole` that this stage has.
  nn::Network own(const nn::Network& whole) const { return is_whole() ? whole : own_; }
  std::size_t slots() const;
  std::size_t weights_later() const;  ///< see ProgramSpec
  std::vector<StagePiece> pieces(std::size_t micro_batches) const;

  using Meanwhile = std::function<void()>;  ///< called while the host waits

  /// Begins a step of micro-batches with these rows, which `compute` runs.
  void begin(std::vector<std::size_t> rows, device::Stream& compute);

  /// This rank's part of a step: the last stage gets the targets, which only the first one's loader
  /// has. They stay until the next call. `outputs`: values of Batch::wanted in a row; 0: there are
  /// none.
  data::Batch share_targets(const data::Batch& batch, std::size_t outputs,
                            const Meanwhile& meanwhile);
  /// Sends or receives what a piece says, of the program's selected slot, and waits for what comes.
  /// Before a piece that computes, waits until the memory that it writes to has left.
  void pass(const StagePiece& piece, backend::Program& program, const Meanwhile& meanwhile);
  /// Waits until all that was given in this step has left.
  void settle(const Meanwhile& meanwhile);
  void progress();  ///< cheap; none for one stage

  /// A number for each slice of this stage's arena, from its first one on, becomes one for each
  /// slice of the whole network's, in its order. Collective over the stages.
  std::vector<double> of_all_slices(const std::vector<double>& own,
                                    const nn::ArenaLayout& layout) const;
  /// The names of those slices.
  std::vector<std::string> all_slices(const nn::ArenaLayout& layout) const;
  /// The texts of all stages, one after the other. Collective over the stages.
  std::string of_all_stages(const std::string& own) const;

  /// Fills `to`, parameters of the whole network, on the first stage, with what the stages have:
  /// the weights or, with `all`, also the rest of the state. On the others it is null. Collective
  /// over the stages.
  void gather(const backend::Parameters& own, backend::Parameters* to, bool all) const;

 private:
  comm::Communicator& channel(bool down) { return down ? *down_ : *up_; }
  void wait(comm::Communicator& on, device::Event& event, const Meanwhile& meanwhile);
  void wait_for_gift(bool down, std::size_t slot, const Meanwhile& meanwhile);
  void give(const StagePiece& piece, backend::Program& program, const Meanwhile& meanwhile);
  void receive_values(std::size_t micro, backend::Program& program, const Meanwhile& meanwhile);
  void receive_gradients(std::size_t micro, const Meanwhile& meanwhile);
  void expect_values(std::size_t micro, std::size_t row_bytes);
  void expect_gradients();
  std::string name_of(bool down, std::size_t micro, bool gives, int other) const;

  PipelineSpec spec_;
  comm::GridAxis axis_;
  nn::Network own_;
  std::vector<nn::ArenaLayout> layouts_;  ///< of all stages, but for the places
  std::vector<std::string> names_;        ///< of the whole arena's slices that move
  std::unique_ptr<comm::Communicator> stages_, down_, up_;
  std::vector<std::unique_ptr<device::Event>> given_[2];  ///< by slot: gradients; values
  std::vector<std::size_t> rows_;                         ///< of this step's micro-batches
  device::Stream* compute_ = nullptr;
  /// What comes next, if its receive has begun: gradients; values. Those come to a separate place,
  /// because a slot may not be free before the last moment.
  std::unique_ptr<device::Event> coming_[2];
  std::vector<std::byte> landing_;
  std::vector<std::span<std::byte>> gradient_places_;  ///< of micro-batches that have run forward
  std::size_t gradients_taken_ = 0;                    ///< of how many
  std::unique_ptr<device::Event> targets_left_;
  std::vector<data::Target> targets_;
  std::vector<float> wanted_;
};

/// The network of which a rank trains all, or a stage.
struct Whole {
  Pipeline& pipeline;
  backend::Backend& backend;
  nn::Network network;
  backend::Precision precision;
  std::uint64_t seed;  ///< of the initial weights
};

enum class Gathered { weights, state };

/// Parameters of the whole network on the first stage, with what the stages have; null on others.
/// `own`: this stage's. Collective over the stages.
std::unique_ptr<backend::Parameters> gather_whole(const Whole& whole,
                                                  const backend::Parameters& own, Gathered what);

/// Has `fill` fill parameters of the whole network, which keep what `own` keeps and have the
/// initial weights, and takes this stage's state out of them. Of a network that is whole: `own`.
void adopt_part(const Whole& whole, backend::Parameters& own,
                const std::function<void(backend::Parameters&)>& fill);

}  // namespace lockstep::train
