#include "app/trained/fitted_threshold.hpp"

#include <fmt/core.h>

#include "lockstep/backend/inference/threshold.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::app {
namespace {

constexpr double lost_points = 0.2;
constexpr double above_all = 2;  // no probability is: what follows the first stage answers all

double percent(std::uint64_t part, std::uint64_t all) {
  return 100 * static_cast<double>(part) / static_cast<double>(all);
}

void tell_fit(const ModelWords& words, const backend::FittedThreshold& fitted, std::uint64_t rows,
              const std::vector<backend::MemberFigures>& figures) {
  double seconds = 0;  // of what follows the first stage
  for (std::size_t m = words.stages.front().members; m < figures.size(); ++m)
    seconds += figures[m].seconds;
  log::info(fmt::format("{}: top-1 {:.2f} % of {} rows in {:.2f} s", words.text(true),
                        percent(fitted.second_right, rows), rows, seconds));
  log::info(fmt::format("found: {}", words.text()));
  log::info(fmt::format("  top-1 {:.2f} %; the first answers {} of {} rows",
                        percent(fitted.right, rows), fitted.kept, rows));
}

}  // namespace

std::vector<backend::MemberFigures> figures_of_all(backend::Classifier& model,
                                                   comm::Control& control) {
  std::vector<backend::MemberFigures> all;
  for (const auto& of_rank : comm::gather_records(control, model.take_figures(), "members"))
    backend::add_figures(all, of_rank);
  return all;
}

void fit_first_threshold(
    ModelWords& words, RunningModel& running, comm::Control& control,
    const std::function<train::Evaluation(std::function<void(const data::Batch&)> seen)>&
        evaluate) {
  constexpr const char* phase = "threshold of a cascade";
  backend::Combined& model = *running.combined;
  model.set_first_threshold(above_all);
  std::vector<backend::ThresholdRow> mine;
  const train::Evaluation all = evaluate([&](const data::Batch& batch) {
    for (std::size_t row = 0; row < batch.rows; ++row) {
      const auto label = static_cast<std::size_t>(batch.targets[row].label_a);
      const std::span<const float> first = model.first_answer(row);
      mine.push_back({.confidence = backend::top_probability(first),
                      .first_right = backend::predicted_class(first, label) == label,
                      .second_right = model.predicted(row, label) == label});
    }
  });
  std::vector<backend::ThresholdRow> rows;
  for (const auto& of_rank : comm::gather_records_at_root(control, mine, phase))
    rows.insert(rows.end(), of_rank.begin(), of_rank.end());
  const backend::FittedThreshold fitted = backend::fit_threshold(std::move(rows), lost_points);
  words.stages.front().above = comm::broadcast_record(control, fitted.above, phase);
  words.fits = false;
  model.set_first_threshold(words.stages.front().above);
  tell_fit(words, fitted, all.rows, figures_of_all(model, control));
}

}  // namespace lockstep::app
