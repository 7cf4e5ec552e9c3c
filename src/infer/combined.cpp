#include "lockstep/infer/combined.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "lockstep/backend/output_loss.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::infer {

GatheredRows::GatheredRows(std::size_t batch, std::size_t row_bytes, device::Device& device)
    : batch_(batch), row_bytes_(row_bytes), images_(device.allocate_pinned(batch * row_bytes)) {
  std::memset(images_.data(), 0, images_.size());
}

data::Batch GatheredRows::take(const data::Batch& from, const std::vector<std::size_t>& rows) {
  check(rows.size() <= batch_, "no more rows than were said");
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(images_.data() + i * row_bytes_, from.images + rows[i] * row_bytes_, row_bytes_);
  return {.images = reinterpret_cast<const std::uint8_t*>(images_.data()),
          .rows = rows.size(),
          .capacity = batch_};
}

namespace {

/// log(the mean of exp(log) / exp(the first one)). By the largest, so that nothing overflows; of
/// equal ones it is exactly 0.
double log_mean_by_first(const std::vector<double>& logs) {
  const double largest = *std::ranges::max_element(logs);
  double sum = 0;
  for (const double one : logs) sum += std::exp(one - largest);
  return largest - logs[0] + std::log(sum / static_cast<double>(logs.size()));
}

}  // namespace

std::vector<float> mean_logits(const std::vector<std::span<const float>>& members) {
  std::vector<double> log_sums;
  for (const auto& logits : members) log_sums.push_back(backend::log_sum(logits));
  std::vector<float> mean;
  std::vector<double> logs(members.size());  // of the class's probability by each member
  for (std::size_t k = 0; k < members[0].size(); ++k) {
    for (std::size_t m = 0; m < members.size(); ++m) logs[m] = double{members[m][k]} - log_sums[m];
    mean.push_back(static_cast<float>(double{members[0][k]} + log_mean_by_first(logs)));
  }
  return mean;
}

std::vector<float> mean_label_logits(const std::vector<std::span<const float>>& members) {
  std::vector<float> mean;
  std::vector<double> on(members.size()), off(members.size());  // logs of both probabilities
  for (std::size_t k = 0; k < members[0].size(); ++k) {
    for (std::size_t m = 0; m < members.size(); ++m) {
      on[m] = -backend::arithmetic::softplus(-double{members[m][k]});
      off[m] = -backend::arithmetic::softplus(double{members[m][k]});
    }
    const double more = log_mean_by_first(on) - log_mean_by_first(off);
    mean.push_back(static_cast<float>(double{members[0][k]} + more));
  }
  return mean;
}

std::vector<float> mean_values(const std::vector<std::span<const float>>& members,
                               const std::vector<const ValueScale*>& scales) {
  const auto value = [&](std::size_t m, std::size_t k) {
    return double{members[m][k]} * double{scales[m]->stddev.at(k)} + double{scales[m]->mean.at(k)};
  };
  std::vector<float> mean;
  for (std::size_t k = 0; k < members[0].size(); ++k) {
    double more = 0;  // than the first says; equal members add exactly 0
    for (std::size_t m = 1; m < members.size(); ++m) more += value(m, k) - value(0, k);
    more /= static_cast<double>(members.size()) * double{scales[0]->stddev.at(k)};
    mean.push_back(static_cast<float>(double{members[0][k]} + more));
  }
  return mean;
}

Combined::Combined(std::vector<Member> members, const CombinedSpec& spec, device::Device& device)
    : spec_(spec), members_(std::move(members)) {
  std::size_t count = 0;
  for (const Stage& stage : spec_.stages) count += stage.members;
  check(count == members_.size() && count > 0, "stages that have all members");
  check(spec_.stages.size() == 1 || spec_.loss.task == data::Task::classes, "a cascade of classes");
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
    std::erase_if(
        left, [&](std::size_t row) { return backend::top_probability(logits(row)) > stage.above; });
  }
  for (std::size_t row = 0; batch.targets != nullptr && row < batch.rows; ++row)
    backend::row_loss(spec_.loss, logits(row), batch.targets[row],
                      batch.wanted == nullptr ? nullptr : batch.wanted + row * spec_.outputs, 1,
                      metrics_, nullptr);
}

/// Rows `rows` are the first ones of `batch`.
void Combined::answer(const Stage& stage, std::size_t first_member, const data::Batch& batch,
                      const std::vector<std::size_t>& rows) {
  for (std::size_t m = 0; m < stage.members; ++m) run_member(first_member + m, batch);
  std::vector<std::span<const float>> of_row(stage.members);
  std::vector<const ValueScale*> scales;
  for (std::size_t m = 0; m < stage.members; ++m)
    scales.push_back(&members_[first_member + m].scale);
  const data::Task task = spec_.loss.task;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t m = 0; m < stage.members; ++m)
      of_row[m] = members_[first_member + m].network->logits(i);
    float* to = answers_.data() + rows[i] * spec_.outputs;
    if (of_row.size() == 1)
      std::ranges::copy(of_row[0], to);
    else
      std::ranges::copy(task == data::Task::classes  ? mean_logits(of_row)
                        : task == data::Task::labels ? mean_label_logits(of_row)
                                                     : mean_values(of_row, scales),
                        to);
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

backend::Metrics Combined::take_metrics() { return std::exchange(metrics_, {}); }

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
    if (!std::isnan(backend::top_probability(gate_->logits(row))))
      rows_of_arm[how_.arm_of_class.at(gate_->predicted(row))].push_back(row);
  for (std::size_t arm = 0; arm < arms_.size(); ++arm)
    if (!rows_of_arm[arm].empty()) answer(arm, batch, rows_of_arm[arm]);
  for (std::size_t row = 0; batch.targets != nullptr && row < batch.rows; ++row)
    backend::count_row(metrics_, logits(row), batch.targets[row]);
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

backend::Metrics Gated::take_metrics() { return std::exchange(metrics_, {}); }

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

namespace {

/// The number of fewest decimals in [low, high); REQUIRES: 0 <= low < high. Where rounding leaves
/// none, it is `low`.
double shortest_between(double low, double high) {
  for (double scale = 1; scale <= 1e15; scale *= 10) {
    const double rounded = std::ceil(low * scale) / scale;
    if (rounded >= low && rounded < high) return rounded;
  }
  return low;
}

}  // namespace

FittedThreshold fit_threshold(std::vector<ThresholdRow> rows, double points) {
  for (ThresholdRow& row : rows)
    if (std::isnan(row.confidence)) row.confidence = 0;
  std::ranges::sort(rows, {}, &ThresholdRow::confidence);
  FittedThreshold fitted{.kept = rows.size()};
  for (const ThresholdRow& row : rows) {
    fitted.right += row.first_right;
    fitted.second_right += row.second_right;
  }
  const double needed = static_cast<double>(fitted.second_right) -
                        points / 100 * static_cast<double>(rows.size()) - 1e-9;
  // The threshold is at `low`: the rows up to `at` have no more confidence.
  std::size_t at = 0;
  double low = 0;
  const auto pass_rows = [&] {
    for (; at < rows.size() && rows[at].confidence <= low; ++at) {
      fitted.right += rows[at].second_right;
      fitted.right -= rows[at].first_right;
      --fitted.kept;
    }
  };
  pass_rows();
  while (at < rows.size() && static_cast<double>(fitted.right) < needed) {
    low = rows[at].confidence;
    pass_rows();
  }
  if (at < rows.size()) fitted.above = shortest_between(low, rows[at].confidence);
  return fitted;
}

}  // namespace lockstep::infer
