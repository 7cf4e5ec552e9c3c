#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/backend/inference/combined.hpp"
#include "lockstep/backend/inference/gathered_rows.hpp"

namespace lockstep::backend {

/// Networks that answer the rows of some of a chain's gate's classes, together, as an ensemble.
struct GateArm {
  std::size_t members = 1;
  std::vector<std::size_t> outputs;  ///< by their own output: which output of the chain it is
};

/// How networks answer as one model. Its members are those of the stages and then those of the
/// arms, one after the other. Without arms the stages are the whole model; with arms they are the
/// gate of a chain.
struct Arrangement {
  std::vector<Stage> stages = {{}};
  std::vector<GateArm> arms = {};
  std::vector<std::size_t> arm_of_class = {};  ///< by the gate's class
};

/// A model whose class chooses the one that answers: the gate says a class of each row, and the arm
/// of that class answers it, in whatever company: its members are Ladders. An answer has the arm's
/// bits. Outputs that the arm does not have are less than its least one by `absent`, so that their
/// probability is nearly 0 and a loss stays finite. A row of which the gate says what is not a
/// number gets NaN.
class Gated final : public Classifier {
 public:
  static constexpr float absent = 50;
  /// `arms`: by the numbers in `how`. `spec`: of the chain; its stages are not used.
  Gated(std::unique_ptr<Classifier> gate, std::vector<std::unique_ptr<Classifier>> arms,
        Arrangement how, const CombinedSpec& spec, device::Device& device);
  void run(const data::Batch& batch) override;
  Metrics take_metrics() override;
  std::span<const float> logits(std::size_t row) override;
  std::vector<MemberFigures> take_figures() override;

 private:
  void answer(std::size_t arm, const data::Batch& batch, const std::vector<std::size_t>& rows);

  std::unique_ptr<Classifier> gate_;
  std::vector<std::unique_ptr<Classifier>> arms_;
  Arrangement how_;
  std::size_t outputs_;
  GatheredRows gathered_;
  std::vector<float> answers_;  ///< [rows, outputs]
  Metrics metrics_;
};

/// The model that the members make: the only one itself, Combined or a Gated. `spec`: of the whole
/// model; its stages are those of `how`.
std::unique_ptr<Classifier> arrange(std::vector<Member> members, const Arrangement& how,
                                    CombinedSpec spec, device::Device& device);

}  // namespace lockstep::backend
