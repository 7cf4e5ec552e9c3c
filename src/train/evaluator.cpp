#include "lockstep/train/evaluator.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include <fmt/core.h>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/data/loader.hpp"

namespace lockstep::train {
namespace {

/// The predicted class of a row of `label`, by the rule of top-1: a NaN is never right.
std::size_t likeliest(std::span<const float> logits, std::size_t label) {
  std::size_t best = label;
  for (std::size_t k = 0; k < logits.size(); ++k) {
    const bool before_label = backend::arithmetic::outranks(
        static_cast<std::int32_t>(k), logits[k], static_cast<std::int32_t>(label), logits[label]);
    if (before_label && (best == label || logits[k] > logits[best])) best = k;
  }
  return best;
}

}  // namespace

std::uint64_t Evaluation::rows_of(std::size_t label) const {
  const auto row = confusion.begin() + static_cast<std::ptrdiff_t>(label * classes);
  return std::accumulate(row, row + static_cast<std::ptrdiff_t>(classes), std::uint64_t{0});
}

double Evaluation::accuracy_of(std::size_t label) const {
  return static_cast<double>(confusion[label * classes + label]) /
         static_cast<double>(rows_of(label));
}

Evaluator::Evaluator(const EvaluatorSpec& spec, backend::Backend& backend,
                     backend::Parameters& parameters, comm::Control& control,
                     const data::DataSet& rows)
    : spec_(spec), backend_(backend), control_(control), rows_(rows) {
  spec_.program.training = false;
  spec_.program.label_smoothing = 0;  // so that losses with and without it compare
  program_ = backend_.compile(spec_.network, spec_.program, parameters);
}

Evaluation Evaluator::evaluate(bool with_confusion) {
  const std::size_t classes = spec_.network.classes;
  const auto world = static_cast<std::size_t>(control_.world());
  data::LoaderSpec loading;
  loading.sampler = {.rows = rows_.info().rows,
                     .global_batch = spec_.program.batch * world,
                     .rank = control_.rank(),
                     .world = control_.world(),
                     .shuffle = data::Shuffle::none,
                     .keep_last = true};
  loading.augment = spec_.augment;
  loading.workers = spec_.workers;
  loading.bind_worker = spec_.bind_worker;
  loading.epochs = 1;
  data::Loader loader(rows_, loading, backend_.device());

  backend::Metrics mine;
  std::vector<double> confusion(with_confusion ? classes * classes : 0);
  for (std::size_t i = 0; i < loader.sampler().batches(); ++i) {
    comm::activity::enter(comm::Phase::evaluation);
    const data::Batch batch = loader.next();
    const backend::Metrics got = evaluate_batch(batch, with_confusion ? &confusion : nullptr);
    loader.release(batch);
    mine += got;
    if (control_.any(spec_.stop && spec_.stop(), "evaluation batch")) {
      Evaluation left;
      left.stopped = true;
      return left;
    }
  }

  std::vector<double> sums{mine.loss, static_cast<double>(mine.rows),
                           static_cast<double>(mine.top1), static_cast<double>(mine.top5)};
  sums.insert(sums.end(), confusion.begin(), confusion.end());
  sums = control_.sum(sums, "evaluation");
  check(sums[1] == static_cast<double>(rows_.info().rows),
        fmt::format("evaluation counted {} of {} rows", sums[1], rows_.info().rows));
  return {false,
          static_cast<std::uint64_t>(sums[1]),
          {sums[0] / sums[1], sums[2] / sums[1], sums[3] / sums[1]},
          classes,
          {sums.begin() + 4, sums.end()}};
}

backend::Metrics Evaluator::evaluate_batch(const data::Batch& batch,
                                           std::vector<double>* confusion) {
  if (batch.rows == 0) return {};
  program_->load(batch);
  for (const backend::TapeStep& piece : program_->forward()) piece.run();
  if (confusion != nullptr) {
    const std::size_t classes = spec_.network.classes;
    logits_.resize(spec_.program.batch * classes);
    program_->copy_logits(logits_);
    for (std::size_t row = 0; row < batch.rows; ++row) {
      const auto label = static_cast<std::size_t>(batch.targets[row].label_a);
      const std::size_t taken_for =
          likeliest(std::span(logits_).subspan(row * classes, classes), label);
      (*confusion)[label * classes + taken_for] += 1;
    }
  }
  return program_->take_metrics();
}

}  // namespace lockstep::train
