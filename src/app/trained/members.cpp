#include "app/trained/members.hpp"

#include <filesystem>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::app {
namespace {

constexpr double lost_points = 0.2;
constexpr double above_all = 2;  // no probability is: what follows the first stage answers all

double percent(std::uint64_t part, std::uint64_t all) {
  return 100 * static_cast<double>(part) / static_cast<double>(all);
}

void tell_fit(const infer::ModelWords& words, const infer::FittedThreshold& fitted,
              std::uint64_t rows, const std::vector<infer::MemberFigures>& figures) {
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

std::vector<std::string> member_files(const infer::ModelWords& words) {
  std::vector<std::string> files;
  const std::vector<std::size_t> parts = words.parts();
  for (const std::string& name : words.files) {
    files.push_back(train::choose_checkpoint(name));
    for (std::size_t other = 0; other + 1 < files.size(); ++other) {
      if (parts[other] != parts[files.size() - 1]) continue;  // a gate may answer, too
      std::error_code none;
      require(
          !std::filesystem::equivalent(files[other], files.back(), none),
          fmt::format("{}: is a member twice, and {} is the same file", words.files[other], name));
    }
  }
  return files;
}

std::string figures_text(const infer::MemberFigures& figures) {
  const auto rows = static_cast<double>(figures.rows);
  return fmt::format(
      "{}: {} in {:.2f} s{}", figures.name, counted(figures.rows, "row"), figures.seconds,
      figures.rows > 0 ? fmt::format(", {:.0f} images/s", rows / figures.seconds) : "");
}

std::vector<infer::MemberFigures> figures_of_all(infer::Classifier& model, comm::Control& control) {
  std::vector<infer::MemberFigures> all;
  for (const auto& of_rank : comm::gather_records(control, model.take_figures(), "members"))
    infer::add_figures(all, of_rank);
  return all;
}

void fit_first_threshold(
    infer::ModelWords& words, infer::RunningModel& running, comm::Control& control,
    const std::function<train::Evaluation(std::function<void(const data::Batch&)> seen)>&
        evaluate) {
  constexpr const char* phase = "threshold of a cascade";
  infer::Combined& model = *running.combined;
  model.set_first_threshold(above_all);
  std::vector<infer::ThresholdRow> mine;
  const train::Evaluation all = evaluate([&](const data::Batch& batch) {
    for (std::size_t row = 0; row < batch.rows; ++row) {
      const auto label = static_cast<std::size_t>(batch.targets[row].label_a);
      const std::span<const float> first = model.first_answer(row);
      mine.push_back({.confidence = backend::top_probability(first),
                      .first_right = backend::predicted_class(first, label) == label,
                      .second_right = model.predicted(row, label) == label});
    }
  });
  std::vector<infer::ThresholdRow> rows;
  for (const auto& of_rank : comm::gather_records_at_root(control, mine, phase))
    rows.insert(rows.end(), of_rank.begin(), of_rank.end());
  const infer::FittedThreshold fitted = infer::fit_threshold(std::move(rows), lost_points);
  words.stages.front().above = comm::broadcast_record(control, fitted.above, phase);
  words.fits = false;
  model.set_first_threshold(words.stages.front().above);
  tell_fit(words, fitted, all.rows, figures_of_all(model, control));
}

}  // namespace lockstep::app
