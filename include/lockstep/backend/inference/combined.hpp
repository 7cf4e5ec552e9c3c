#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/inference/classifier.hpp"
#include "lockstep/backend/inference/gathered_rows.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::backend {

/// One stage of a cascade. Its members answer together: by the mean of their probabilities.
struct Stage {
  std::size_t members = 1;
  /// A row keeps this stage's answer if its likeliest class has a probability above this number;
  /// the next stage answers the others. Of the last stage it is not used.
  double above = 0;
};

/// A network of a model that has several.
struct Member {
  std::string name;  ///< in figures
  std::unique_ptr<Classifier> network;
};

struct CombinedSpec {
  std::vector<Stage> stages;
  std::size_t row_bytes = 0;  ///< of an image
  std::size_t outputs = 0;    ///< of each member
  std::size_t batch = 0;      ///< rows of a batch, at most
};

/// Several networks that answer as one: an ensemble is one stage of several members, a cascade
/// several stages. Each row of an ensemble has the mean of its members' probabilities; it is told
/// as logits, those of the first member plus log(mean / the first member's probability), whose
/// softmax is that mean. So equal members have the bits of one. Each row of a cascade has the bits
/// of the stage that answers it, in whatever company: later stages' members are Ladders, since
/// their batches have any rows; the first stage's may be others where rows keep their places.
class Combined final : public Classifier {
 public:
  /// `members`: of all stages, one after the other.
  Combined(std::vector<Member> members, const CombinedSpec& spec, device::Device& device);
  void run(const data::Batch& batch) override;
  Metrics take_metrics() override;
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
  Metrics metrics_;
};

/// The logits of an ensemble from its members' logits of one row, as Combined tells them. NaN where
/// any is. All have the same size.
std::vector<float> mean_logits(const std::vector<std::span<const float>>& members);

}  // namespace lockstep::backend
