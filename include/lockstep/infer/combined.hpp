#pragma once

// Several networks that answer as one model.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/batch.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/infer/classifier.hpp"

namespace lockstep::infer {

/// Copies of some rows of a batch, one after the other, as a batch for another network.
class GatheredRows {
 public:
  /// `batch`: rows at most.
  GatheredRows(std::size_t batch, std::size_t row_bytes, device::Device& device);
  /// Its images are valid until the next call; it has no targets.
  data::Batch take(const data::Batch& from, const std::vector<std::size_t>& rows);

 private:
  std::size_t batch_, row_bytes_;
  device::PinnedBuffer images_;
};

/// One stage of a cascade. Its members answer together: by the mean of their probabilities, or of
/// their values. Only classes have a cascade.
struct Stage {
  std::size_t members = 1;
  /// A row keeps this stage's answer if its likeliest class has a probability above this number;
  /// the next stage answers the others. Of the last stage it is not used.
  double above = 0;
};

/// By which outputs become values in their units: output * stddev + mean. Empty, where the outputs
/// are no values.
struct ValueScale {
  std::vector<float> mean, stddev;
  static ValueScale of(const data::DataSetInfo& input) {
    return {input.target_mean, input.target_stddev};
  }
};

/// A network of a model that has several.
struct Member {
  std::string name;  ///< in figures
  std::unique_ptr<Classifier> network;
  ValueScale scale = {};
};

struct CombinedSpec {
  std::vector<Stage> stages;
  std::size_t row_bytes = 0;  ///< of an image
  std::size_t outputs = 0;    ///< of each member
  std::size_t batch = 0;      ///< rows of a batch, at most
  backend::LossSpec loss = {};
};

/// Several networks that answer as one: an ensemble is one stage of several members, a cascade
/// several stages. Each row of an ensemble has the mean of its members' probabilities, of classes
/// or of each label; it is told as logits, those of the first member plus log(mean / the first
/// member's probability), whose softmax, or of labels whose sigmoid, is that mean. Values are the
/// mean of the members' values, told by the first member's scale. So equal members have the bits of
/// one. Each row of a cascade has the bits of the stage that answers it, in whatever company: later
/// stages' members are Ladders, since their batches have any rows; the first stage's may be others
/// where rows keep their places.
class Combined final : public Classifier {
 public:
  /// `members`: of all stages, one after the other.
  Combined(std::vector<Member> members, const CombinedSpec& spec, device::Device& device);
  void run(const data::Batch& batch) override;
  backend::Metrics take_metrics() override;
  std::span<const float> logits(std::size_t row) override;
  std::vector<MemberFigures> take_figures() override;

  /// What the first stage says of a row of the last batch, whichever stage answered it.
  std::span<const float> first_answer(std::size_t row) const;
  /// Changes the first stage's `above`.
  void set_first_threshold(double above) { spec_.stages.front().above = above; }

 private:
  void answer(const Stage& stage, std::size_t first_member, const data::Batch& batch,
              const std::vector<std::size_t>& rows);
  void run_member(std::size_t member, const data::Batch& batch);

  CombinedSpec spec_;
  std::vector<Member> members_;
  std::optional<GatheredRows> gathered_;  ///< that a later stage answers
  std::vector<float> answers_;            ///< [rows, outputs]
  std::vector<float> first_;              ///< the same of the first stage
  std::vector<MemberFigures> figures_;
  backend::Metrics metrics_;
};

// An ensemble's outputs from its members' outputs of one row, as Combined tells them. NaN where any
// is: with classes in all outputs, else in the same one. All have the same size.

/// Of classes.
std::vector<float> mean_logits(const std::vector<std::span<const float>>& members);
/// Of labels.
std::vector<float> mean_label_logits(const std::vector<std::span<const float>>& members);
/// Of values, each member's by its scale.
std::vector<float> mean_values(const std::vector<std::span<const float>>& members,
                               const std::vector<const ValueScale*>& scales);

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
  backend::Metrics take_metrics() override;
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
  backend::Metrics metrics_;
};

/// The model that the members make: the only one itself, Combined or a Gated. `spec`: of the whole
/// model; its stages are those of `how`.
std::unique_ptr<Classifier> arrange(std::vector<Member> members, const Arrangement& how,
                                    CombinedSpec spec, device::Device& device);

/// What is known of a validation row, for the threshold of a cascade of two.
struct ThresholdRow {
  double confidence = 0;  ///< top_probability() by the first
  bool first_right = false, second_right = false;
  static void fields(auto& self, auto&& visit) {
    visit(self.confidence, self.first_right, self.second_right);
  }
};

struct FittedThreshold {
  double above = 1;                           ///< see Stage::above; few digits
  std::uint64_t kept = 0;                     ///< rows that the first answers
  std::uint64_t right = 0, second_right = 0;  ///< of the cascade, of the second on its own
};

/// The smallest threshold from 0 to 1 by which a cascade is right on no fewer rows than the second
/// minus `points` per cent of all rows. There is one: by 1 the second answers all rows. Of all
/// thresholds that divide the rows in the same way, it has the fewest digits. A confidence that is
/// not a number is above nothing.
FittedThreshold fit_threshold(std::vector<ThresholdRow> rows, double points);

}  // namespace lockstep::infer
