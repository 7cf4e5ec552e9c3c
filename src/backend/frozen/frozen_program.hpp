#pragma once

#include <memory>

#include "lockstep/backend/program.hpp"
#include "lockstep/backend/vectors.hpp"

namespace lockstep::backend {

/// Two programs as one: what that of the frozen layers makes is handed to the other one's
/// forward.
class FrozenProgram final : public Program {
 public:
  /// `spec`: of both together. `vectors` must outlive the program.
  FrozenProgram(const ProgramSpec& spec, std::unique_ptr<Program> frozen,
                std::unique_ptr<Program> trained, Vectors& vectors);
  const ProgramSpec& spec() const override { return spec_; }
  void select(std::size_t slot) override;
  void load(const data::Batch& batch) override;
  void prefetch(const data::Batch& batch) override;
  void load_normalised(std::span<const float> images,
                       std::span<const data::Target> targets) override;
  std::size_t input_place() const override { return frozen_->input_place(); }
  void set_input_place(std::size_t place) override;
  void set_scalars(const optim::StepScalars& scalars) override { trained_->set_scalars(scalars); }
  const Tape& forward() const override { return forward_; }
  const Tape& backward(bool accumulate) const override { return trained_->backward(accumulate); }
  Metrics take_metrics() override { return trained_->take_metrics(); }
  void copy_logits(std::span<float> logits) const override { trained_->copy_logits(logits); }
  MemoryPlan memory() const override;

  Program& trained() { return *trained_; }

 private:
  void hand_over();

  ProgramSpec spec_;
  std::unique_ptr<Program> frozen_, trained_;
  Vectors& vectors_;
  Tape forward_;
};

}  // namespace lockstep::backend
