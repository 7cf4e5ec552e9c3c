#include "lockstep/backend/inference/gated.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::backend {

Gated::Gated(std::unique_ptr<Classifier> gate, std::vector<std::unique_ptr<Classifier>> arms,
             Arrangement how, const CombinedSpec& spec, device::Device& device)
    : gate_(std::move(gate)),
      arms_(std::move(arms)),
      how_(std::move(how)),
      outputs_(spec.outputs),
      gathered_(spec.batch, spec.row_bytes, device) {
  check(arms_.size() == how_.arms.size() && !arms_.empty(), "all arms of a chain");
  for (const std::size_t arm : how_.arm_of_class) check(arm < arms_.size(), "an arm of the chain");
  for (const GateArm& arm : how_.arms)
    for (const std::size_t output : arm.outputs) check(output < outputs_, "an output of the chain");
}

void Gated::run(const data::Batch& batch) {
  data::Batch without_targets = batch;
  without_targets.targets = nullptr;
  gate_->run(without_targets);
  answers_.assign(batch.rows * outputs_, std::numeric_limits<float>::quiet_NaN());
  std::vector<std::vector<std::size_t>> rows_of_arm(arms_.size());
  for (std::size_t row = 0; row < batch.rows; ++row)
    if (!std::isnan(top_probability(gate_->logits(row))))
      rows_of_arm[how_.arm_of_class.at(gate_->predicted(row))].push_back(row);
  for (std::size_t arm = 0; arm < arms_.size(); ++arm)
    if (!rows_of_arm[arm].empty()) answer(arm, batch, rows_of_arm[arm]);
  for (std::size_t row = 0; batch.targets != nullptr && row < batch.rows; ++row)
    count_row(metrics_, logits(row), batch.targets[row]);
}

void Gated::answer(std::size_t arm, const data::Batch& batch,
                   const std::vector<std::size_t>& rows) {
  arms_[arm]->run(gathered_.take(batch, rows));
  const std::vector<std::size_t>& outputs = how_.arms[arm].outputs;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> own = arms_[arm]->logits(i);
    const std::span<float> to = std::span(answers_).subspan(rows[i] * outputs_, outputs_);
    std::ranges::fill(to, *std::ranges::min_element(own) - absent);
    for (std::size_t k = 0; k < own.size(); ++k) to[outputs[k]] = own[k];
  }
}

Metrics Gated::take_metrics() { return std::exchange(metrics_, {}); }

std::span<const float> Gated::logits(std::size_t row) {
  return std::span(answers_).subspan(row * outputs_, outputs_);
}

std::vector<MemberFigures> Gated::take_figures() {
  std::vector<MemberFigures> all = gate_->take_figures();
  for (const auto& arm : arms_) add_figures(all, arm->take_figures());
  return all;
}

std::unique_ptr<Classifier> arrange(std::vector<Member> members, const Arrangement& how,
                                    CombinedSpec spec, device::Device& device) {
  if (members.size() == 1) return std::move(members.front().network);
  std::size_t next = 0;
  const auto take = [&](const std::vector<Stage>& stages, std::size_t outputs) {
    std::size_t count = 0;
    for (const Stage& stage : stages) count += stage.members;
    check(next + count <= members.size(), "all members of an arrangement");
    std::vector<Member> own;
    while (count-- > 0) own.push_back(std::move(members[next++]));
    spec.stages = stages;
    spec.outputs = outputs;
    return std::make_unique<Combined>(std::move(own), spec, device);
  };
  const std::size_t all_outputs = spec.outputs;
  auto first = take(how.stages, how.arms.empty() ? all_outputs : how.arm_of_class.size());
  if (how.arms.empty()) return first;
  std::vector<std::unique_ptr<Classifier>> arms;
  for (const GateArm& arm : how.arms)
    arms.push_back(take({{.members = arm.members}}, arm.outputs.size()));
  check(next == members.size(), "no member without a place");
  spec.outputs = all_outputs;
  return std::make_unique<Gated>(std::move(first), std::move(arms), how, spec, device);
}

}  // namespace lockstep::backend
