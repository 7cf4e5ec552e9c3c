#include "lockstep/backend/inference/combined.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::backend {
std::vector<float> mean_logits(const std::vector<std::span<const float>>& members) {
  std::vector<double> log_sums;
  for (const auto& logits : members) log_sums.push_back(log_sum(logits));
  std::vector<float> mean;
  std::vector<double> logs(members.size());  // of the class's probability by each member
  for (std::size_t k = 0; k < members[0].size(); ++k) {
    for (std::size_t m = 0; m < members.size(); ++m) logs[m] = double{members[m][k]} - log_sums[m];
    // By the largest, so that nothing overflows; equal members add exactly 0.
    const double largest = *std::ranges::max_element(logs);
    double sum = 0;
    for (const double one : logs) sum += std::exp(one - largest);
    const double ratio = largest - logs[0] + std::log(sum / static_cast<double>(members.size()));
    mean.push_back(static_cast<float>(double{members[0][k]} + ratio));
  }
  return mean;
}

Combined::Combined(std::vector<Member> members, const CombinedSpec& spec, device::Device& device)
    : spec_(spec), members_(std::move(members)) {
  std::size_t count = 0;
  for (const Stage& stage : spec_.stages) count += stage.members;
  check(count == members_.size() && count > 0, "stages that have all members");
  for (const Member& member : members_) figures_.push_back({.name = member.name});
  if (spec_.stages.size() > 1) gathered_.emplace(spec_.batch, spec_.row_bytes, device);
}

void Combined::run(const data::Batch& batch) {
  check(batch.rows <= spec_.batch, "a batch that is not larger than was said");
  answers_.resize(batch.rows * spec_.outputs);
  std::vector<std::size_t> left(batch.rows);
  std::iota(left.begin(), left.end(), std::size_t{0});
  std::size_t member = 0;
  for (std::size_t s = 0; s < spec_.stages.size() && !left.empty(); ++s) {
    const Stage& stage = spec_.stages[s];
    answer(stage, member, s == 0 ? batch : gathered_->take(batch, left), left);
    member += stage.members;
    if (s == 0) first_ = answers_;
    std::erase_if(left,
                  [&](std::size_t row) { return top_probability(logits(row)) > stage.above; });
  }
  for (std::size_t row = 0; batch.targets != nullptr && row < batch.rows; ++row)
    count_row(metrics_, logits(row), batch.targets[row]);
}

/// Rows `rows` are the first ones of `batch`.
void Combined::answer(const Stage& stage, std::size_t first_member, const data::Batch& batch,
                      const std::vector<std::size_t>& rows) {
  for (std::size_t m = 0; m < stage.members; ++m) run_member(first_member + m, batch);
  std::vector<std::span<const float>> of_row(stage.members);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t m = 0; m < stage.members; ++m)
      of_row[m] = members_[first_member + m].network->logits(i);
    float* to = answers_.data() + rows[i] * spec_.outputs;
    if (of_row.size() == 1)
      std::ranges::copy(of_row[0], to);
    else
      std::ranges::copy(mean_logits(of_row), to);
  }
}

void Combined::run_member(std::size_t member, const data::Batch& batch) {
  const double began_s = now_s();
  data::Batch without_targets = batch;
  without_targets.targets = nullptr;
  members_[member].network->run(without_targets);
  members_[member].network->logits(0);  // waits for the device
  figures_[member] += {.name = {}, .runs = 1, .rows = batch.rows, .seconds = now_s() - began_s};
}

Metrics Combined::take_metrics() { return std::exchange(metrics_, {}); }

std::span<const float> Combined::logits(std::size_t row) {
  return std::span(answers_).subspan(row * spec_.outputs, spec_.outputs);
}

std::vector<MemberFigures> Combined::take_figures() {
  std::vector<MemberFigures> told = figures_;
  for (MemberFigures& one : figures_) one = {.name = one.name};
  return told;
}

std::span<const float> Combined::first_answer(std::size_t row) const {
  return std::span(first_).subspan(row * spec_.outputs, spec_.outputs);
}

}  // namespace lockstep::backend
