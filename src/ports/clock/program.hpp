#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "lockstep/backend/timed_tape.hpp"
#include "ports/clock/stream.hpp"

namespace lockstep::clock {

/// A tape whose steps only take their time. Its results are zero: logits, losses, and what passes a
/// stage's boundaries.
class ClockProgram final : public backend::Program {
 public:
  /// `stream` must outlive the program.
  ClockProgram(const nn::Network& network, const backend::ProgramSpec& spec,
               const backend::TimedTape& times, ClockStream& stream);
  const backend::ProgramSpec& spec() const override { return spec_; }
  void select(std::size_t slot) override;
  void load(const data::Batch& batch) override;
  void load_normalised(std::span<const float> images,
                       std::span<const data::Target> targets) override;
  void set_scalars(const optim::StepScalars&) override {}
  const backend::Tape& forward() const override { return forward_; }
  const backend::Tape& backward(bool) const override { return backward_; }
  backend::Boundary received() override { return at_boundary(received_); }
  backend::Boundary sent() override { return at_boundary(sent_); }
  backend::Metrics take_metrics() override;
  void copy_logits(std::span<float> logits) const override;
  backend::MemoryPlan memory() const override { return {}; }

 private:
  /// Memory of one boundary, one block for each slot.
  struct Crossing {
    std::size_t value_bytes = 0;
    std::vector<std::vector<std::byte>> of_slot;
  };
  backend::Tape make_tape(const std::vector<backend::TimedStep>& steps);
  Crossing make_crossing(const nn::Node& node, std::size_t gradients) const;
  backend::Boundary at_boundary(Crossing& crossing) const;

  backend::ProgramSpec spec_;
  ClockStream& stream_;
  backend::Tape forward_, backward_;
  Crossing received_, sent_;
  std::size_t slot_ = 0;
  backend::Metrics metrics_;
};

}  // namespace lockstep::clock
