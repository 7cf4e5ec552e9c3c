#include "lockstep/train/evaluator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/data/loading/loader.hpp"

namespace lockstep::train {
namespace {

/// Sorts the counts, and makes those of one pair one.
void merge(std::vector<Confused>& counts) {
  const auto pair = [](const Confused& one) { return std::pair(one.label, one.predicted); };
  std::sort(counts.begin(), counts.end(),
            [&](const Confused& a, const Confused& b) { return pair(a) < pair(b); });
  std::size_t kept = 0;
  for (const Confused& one : counts) {
    if (kept > 0 && pair(counts[kept - 1]) == pair(one))
      counts[kept - 1].count += one.count;
    else
      counts[kept++] = one;
  }
  counts.resize(kept);
}

std::uint64_t rows_in(std::span<const Confused> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Confused& one) { return sum + one.count; });
}

/// Each of the counts over all ranks. No message grows with their number. Collective.
std::vector<double> sum_in_pieces(comm::Control& control, std::vector<double> counts) {
  constexpr std::size_t piece = 1 << 13;
  for (std::size_t first = 0; first < counts.size(); first += piece) {
    const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(std::min(piece, counts.size() - first));
    std::ranges::copy(control.sum({begin, end}, "evaluation: counts of classes"), begin);
  }
  return counts;
}

/// All rows once, in their order.
data::LoaderSpec loading_of(const EvaluatorSpec& spec, std::size_t rows) {
  const comm::GridAxis& replicas = spec.replicas;
  data::LoaderSpec loading;
  loading.sampler = {.rows = rows,
                     .global_batch = spec.program.batch * static_cast<std::size_t>(replicas.count),
                     .replica = replicas.index,
                     .replicas = replicas.count,
                     .shuffle = data::Shuffle::none,
                     .keep_last = true,
                     .whole_blocks = spec.whole_blocks};
  loading.augment = spec.augment;
  loading.workers = spec.workers;
  loading.bind_worker = spec.bind_worker;
  loading.epochs = 1;
  return loading;
}

/// Rows of which nothing is known have no score. Throws InputError, on all ranks alike.
void require_known(const data::DataSet& rows) {
  const data::DataSetInfo& info = rows.info();
  if (info.task == data::Task::classes) return;
  for (std::size_t row = 0; row < info.rows; ++row)
    for (std::size_t k = 0; k < info.wanted_values(); ++k)
      if (!std::isnan(rows.wanted(row, k))) return;
  throw InputError(fmt::format("{}: none of its {} is known (data.unknown): nothing can be judged",
                               rows.files().front().string(), choice_name(info.task)));
}

}  // namespace

std::span<const Confused> Evaluation::confusion_of(std::size_t label) const {
  const auto begin = std::partition_point(confusion.begin(), confusion.end(),
                                          [&](const auto& one) { return one.label < label; });
  return {begin, std::partition_point(begin, confusion.end(),
                                      [&](const auto& one) { return one.label == label; })};
}

std::uint64_t Evaluation::rows_of(std::size_t label) const { return rows_in(confusion_of(label)); }

double Evaluation::accuracy_of(std::size_t label) const {
  std::uint64_t right = 0;
  for (const Confused& one : confusion_of(label))
    if (one.predicted == label) right = one.count;
  return static_cast<double>(right) / static_cast<double>(rows_of(label));
}

std::vector<Confused> gather_confusion(comm::Control& control, std::vector<Confused> mine,
                                       std::size_t at_once) {
  constexpr std::string_view phase = "evaluation: counts of classes";
  merge(mine);
  const std::size_t piece =
      std::max<std::size_t>(1, at_once / static_cast<std::size_t>(control.world()));
  const double most = control.max({static_cast<double>(mine.size())}, phase)[0];
  std::vector<Confused> all;
  for (std::size_t sent = 0; static_cast<double>(sent) < most; sent += piece) {
    const auto part = std::span(mine).subspan(std::min(sent, mine.size()));
    const auto now = part.first(std::min(piece, part.size()));
    for (const auto& theirs : comm::gather_records_at_root(
             control, std::vector<Confused>(now.begin(), now.end()), phase))
      all.insert(all.end(), theirs.begin(), theirs.end());
    merge(all);
  }
  return all;
}

Evaluator::Evaluator(const EvaluatorSpec& spec, backend::Backend& backend,
                     backend::Parameters& parameters, comm::Control& control,
                     const data::DataSet& rows)
    : spec_(spec),
      device_(backend.device()),
      control_(control),
      rows_(rows),
      own_(std::make_unique<infer::Inference>(backend, spec.network, spec.program, parameters)),
      model_(own_.get()) {
  require_known(rows);
}

Evaluator::Evaluator(const EvaluatorSpec& spec, device::Device& device, infer::Classifier& model,
                     comm::Control& control, const data::DataSet& rows)
    : spec_(spec), device_(device), control_(control), rows_(rows), model_(&model) {
  require_known(rows);
}

Evaluator::Evaluator(const EvaluatorSpec& spec, device::Device& device, comm::Control& control,
                     const data::DataSet& rows)
    : spec_(spec), device_(device), control_(control), rows_(rows), model_(nullptr) {
  require_known(rows);
}

Evaluation Evaluator::evaluate(bool with_confusion) {
  const data::LoaderSpec loading = loading_of(spec_, rows_.info().rows);
  std::optional<data::Loader> loader;
  if (model_) loader.emplace(rows_, loading, device_);
  const data::Sampler sampler(loading.sampler);
  backend::Metrics mine;
  const bool of_classes = rows_.info().task == data::Task::classes;
  with_confusion = with_confusion && of_classes;
  std::vector<Confused> confusion;
  const std::size_t classes = rows_.info().classes.size();
  std::vector<double> counts(of_classes ? 3 * classes : 0);
  const bool ranked = !of_classes || rows_.info().rows * classes <= most_ranked_outputs;
  SaidRows said;
  std::size_t merge_at = 1 << 16;
  for (std::size_t i = 0; i < sampler.batches(); ++i) {
    control_.activity.enter(comm::Phase::evaluation);
    if (loader) {
      const data::Batch batch = loader->next();
      const backend::Metrics got =
          evaluate_batch(batch, counts, with_confusion ? &confusion : nullptr);
      if (ranked) take_outputs(sampler, batch, said);
      loader->release(batch);
      mine += spec_.whole_blocks ? backend::in_any_order(got) : got;
    }
    if (spec_.progress)
      spec_.progress(std::min((i + 1) * loading.sampler.global_batch, rows_.info().rows));
    if (confusion.size() >= merge_at) {
      merge(confusion);
      merge_at = std::max(merge_at, 2 * confusion.size());
    }
    if (control_.any(spec_.stop && spec_.stop(), "evaluation batch")) {
      Evaluation left;
      left.stopped = true;
      return left;
    }
  }

  const std::vector<double> sums =
      control_.sum({mine.loss, static_cast<double>(mine.rows), static_cast<double>(mine.top1),
                    static_cast<double>(mine.top5)},
                   "evaluation");
  check(sums[1] == static_cast<double>(rows_.info().rows),
        fmt::format("evaluation counted {} of {} rows", sums[1], rows_.info().rows));
  Evaluation result;
  result.rows = static_cast<std::uint64_t>(sums[1]);
  result.mean = {sums[0] / sums[1], sums[2] / sums[1], sums[3] / sums[1], {}};
  if (ranked) {
    TaskScores judged = judge_rows(said, rows_, control_);
    result.mean.scores = std::move(judged.scores);
    result.outputs = std::move(judged.outputs);
  }
  if (of_classes)
    result.mean.scores.merge(class_scores(sum_in_pieces(control_, std::move(counts))));
  else
    result.mean.top1 = result.mean.top5 = std::numeric_limits<double>::quiet_NaN();
  if (with_confusion) result.confusion = gather_confusion(control_, std::move(confusion));
  return result;
}

void Evaluator::take_outputs(const data::Sampler& sampler, const data::Batch& batch,
                             SaidRows& said) {
  const std::size_t first = sampler.part(batch.index).first_position;
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const std::span<const float> outputs = model_->logits(row);
    said.outputs.insert(said.outputs.end(), outputs.begin(), outputs.end());
    said.rows.push_back(static_cast<std::uint32_t>(sampler.row(batch.epoch, first + row)));
  }
}

backend::Metrics Evaluator::evaluate_batch(const data::Batch& batch, std::vector<double>& counts,
                                           std::vector<Confused>* confusion) {
  if (batch.rows == 0) return {};
  model_->run(batch);
  for (std::size_t row = 0; !counts.empty() && row < batch.rows; ++row) {
    const auto label = static_cast<std::uint32_t>(batch.targets[row].label_a);
    const auto predicted = static_cast<std::uint32_t>(model_->predicted(row, label));
    counts.at(std::size_t{3} * label) += 1;
    counts.at(std::size_t{3} * predicted + 1) += 1;
    counts.at(std::size_t{3} * label + 2) += predicted == label;
    if (confusion != nullptr) confusion->push_back({label, predicted, 1});
  }
  if (spec_.seen) spec_.seen(batch);
  return model_->take_metrics();
}

}  // namespace lockstep::train
