#include "lockstep/train/scores.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::train {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
constexpr const char *top1 = "top-1", *top5 = "top-5", *loss_name = "loss";

/// The usual one first.
std::span<const ScoreKind> kinds_of(data::Task task) {
  static constexpr ScoreKind classes[] = {{top1}, {top5}, {loss_name, false}};
  static constexpr ScoreKind labels[] = {{"mAP"},           {"AUC"},        {"micro-F1"},
                                         {"macro-F1"},      {"samples-F1"}, {"exact-match"},
                                         {loss_name, false}};
  static constexpr ScoreKind values[] = {
      {"RMSE", false}, {"MAE", false}, {"R2"}, {loss_name, false}};
  if (task == data::Task::labels) return labels;
  if (task == data::Task::values) return values;
  return classes;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
double f1_of(double right, double wrong, double missed) {
  return ratio(2 * right, 2 * right + wrong + missed);
}

/// Average precision and area under the curve; `rows` descend. Equal logits are one threshold, as
/// in scikit-learn.
void rank(const std::vector<JudgedOutput>& rows, OutputFigures& of) {
  const auto ones =
      static_cast<std::uint64_t>(std::ranges::count(rows, 1.f, &JudgedOutput::wanted));
  const std::uint64_t zeros = rows.size() - ones;
  std::uint64_t ones_above = 0, zeros_above = 0, twice_the_pairs = 0;
  double precision_sum = 0;
  for (std::size_t at = 0; at < rows.size();) {
    std::uint64_t ones_here = 0, zeros_here = 0;
    const float logit = rows[at].said;
    for (; at < rows.size() && rows[at].said == logit; ++at)
      ++(rows[at].wanted == 1 ? ones_here : zeros_here);
    twice_the_pairs += zeros_here * (2 * ones_above + ones_here);
    ones_above += ones_here;
    zeros_above += zeros_here;
    precision_sum += static_cast<double>(ones_here) * static_cast<double>(ones_above) /
                     static_cast<double>(ones_above + zeros_above);
  }
  of.ap = ones > 0 ? precision_sum / static_cast<double>(ones) : nothing;
  of.auc = ones > 0 && zeros > 0 ? static_cast<double>(twice_the_pairs) /
                                       (2 * static_cast<double>(ones) * static_cast<double>(zeros))
                                 : nothing;
}

/// The mean of those that mean something; nothing if none does.
std::optional<double> mean_of(const std::vector<OutputFigures>& outputs,
                              double OutputFigures::*figure) {
  double sum = 0, count = 0;
  for (const OutputFigures& of : outputs) {
    if (std::isnan(of.*figure)) continue;
    sum += of.*figure;
    count += 1;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

void put_mean(TaskScores& to, const char* name, double OutputFigures::*figure) {
  if (const auto mean = mean_of(to.outputs, figure)) to.scores[name] = *mean;
}

/// Of one row's labels.
struct RowCounts {
  std::uint32_t known = 0, right = 0, wrong = 0, missed = 0;
};

void sum_up_labels(TaskScores& to, const std::vector<RowCounts>& rows) {
  put_mean(to, "mAP", &OutputFigures::ap);
  put_mean(to, "AUC", &OutputFigures::auc);
  put_mean(to, "macro-F1", &OutputFigures::f1);
  double right = 0, wrong = 0, missed = 0;
  for (const OutputFigures& of : to.outputs) {
    right += static_cast<double>(of.right);
    wrong += static_cast<double>(of.wrong);
    missed += static_cast<double>(of.missed);
  }
  double judged = 0, f1 = 0, exact = 0;
  for (const RowCounts& row : rows) {
    if (row.known == 0) continue;
    judged += 1;
    f1 += f1_of(row.right, row.wrong, row.missed);
    exact += row.wrong == 0 && row.missed == 0;
  }
  if (judged == 0) return;
  to.scores["micro-F1"] = f1_of(right, wrong, missed);
  to.scores["samples-F1"] = f1 / judged;
  to.scores["exact-match"] = exact / judged;
}

/// Output `k` of all rows, by row; on rank 0.
std::vector<float> gather_column(const SaidRows& mine, std::size_t k, std::size_t outputs,
                                 const std::vector<std::vector<std::uint32_t>>& rows_of_ranks,
                                 std::size_t rows, comm::Control& control) {
  std::string bytes(mine.rows.size() * sizeof(float), '\0');
  for (std::size_t i = 0; i < mine.rows.size(); ++i)
    std::memcpy(bytes.data() + i * sizeof(float), &mine.outputs[i * outputs + k], sizeof(float));
  const std::vector<std::string> parts = control.gather_at_root(bytes, "evaluation: outputs");
  std::vector<float> column(parts.empty() ? 0 : rows);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const std::vector<std::uint32_t>& theirs = rows_of_ranks[rank];
    check(parts[rank].size() == theirs.size() * sizeof(float), "an output of each row");
    for (std::size_t i = 0; i < theirs.size(); ++i)
      std::memcpy(&column.at(theirs[i]), parts[rank].data() + i * sizeof(float), sizeof(float));
  }
  return column;
}

/// What rank 0 makes of a column.
OutputFigures judge_column(const std::vector<float>& column, std::size_t k,
                           const data::DataSet& rows, std::vector<RowCounts>& counts) {
  const data::DataSetInfo& info = rows.info();
  std::vector<JudgedOutput> known;
  for (std::size_t row = 0; row < column.size(); ++row) {
    const float wanted = rows.wanted(row, k);
    if (std::isnan(wanted)) continue;
    known.push_back({column[row], wanted});
    ++counts[row].known;
    const bool said = column[row] > 0, applies = wanted == 1;
    counts[row].right += said && applies;
    counts[row].wrong += (said || std::isnan(column[row])) && !applies;
    counts[row].missed += !said && applies;
  }
  if (info.task == data::Task::labels) return judge_label(std::move(known));
  return judge_value(known, info.target_mean.at(k), info.target_stddev.at(k));
}

}  // namespace

const ScoreKind& score_kind(data::Task task, const std::string& name) {
  const std::span<const ScoreKind> kinds = kinds_of(task);
  if (name.empty()) return kinds.front();
  std::vector<std::string> names;
  for (const ScoreKind& kind : kinds) {
    if (name == kind.name) return kind;
    names.emplace_back(kind.name);
  }
  throw InputError(fmt::format("eval.best = {} is no score of {}; there are {}", name,
                               choice_name(task), join(names, ", ")));
}

std::string kept_name(const ScoreKind& kind) {
  return kind.name == std::string_view(top1) ? "" : kind.name;
}

std::optional<double> score_in(const observe::Validation& validation, const ScoreKind& kind) {
  const std::string name = kind.name;
  if (name == top1) return validation.top1;
  if (name == top5) return validation.top5;
  if (name == loss_name) return validation.loss;
  const auto found = validation.scores.find(name);
  return found == validation.scores.end() ? std::nullopt : std::optional(found->second);
}

observe::Scores step_scores(data::Task task, const std::array<double, 3>& sums) {
  if (task == data::Task::labels) return {{"F1", f1_of(sums[0], sums[1], sums[2])}};
  if (task == data::Task::values) return {{"R2", 1 - sums[1] / std::max(sums[0], 1.0)}};
  return {};
}

OutputFigures judge_label(std::vector<JudgedOutput> rows) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  OutputFigures of{.known = rows.size()};
  for (JudgedOutput& row : rows) {
    const bool applies = row.wanted == 1;
    if (std::isnan(row.said)) row.said = applies ? -infinity : infinity;
    const bool said = row.said > 0;
    ++(said ? (applies ? of.right : of.wrong) : (applies ? of.missed : of.rightly_not));
  }
  if (rows.empty()) {
    for (const auto figure : {&OutputFigures::precision, &OutputFigures::recall, &OutputFigures::f1,
                              &OutputFigures::ap, &OutputFigures::auc})
      of.*figure = nothing;
    return of;
  }
  const auto right = static_cast<double>(of.right);
  of.precision = ratio(right, right + static_cast<double>(of.wrong));
  of.recall = ratio(right, right + static_cast<double>(of.missed));
  of.f1 = f1_of(right, static_cast<double>(of.wrong), static_cast<double>(of.missed));
  std::ranges::sort(rows, std::greater{}, &JudgedOutput::said);
  rank(rows, of);
  return of;
}

OutputFigures judge_value(const std::vector<JudgedOutput>& rows, double mean, double deviation) {
  OutputFigures of{.known = rows.size()};
  const auto count = static_cast<double>(rows.size());
  double wanted = 0, squares = 0, absolute = 0, errors = 0;
  for (const JudgedOutput& row : rows) {
    const double error = row.said * deviation + mean - row.wanted;
    wanted += row.wanted;
    squares += error * error;
    absolute += std::abs(error);
    errors += error;
  }
  double spread = 0;
  for (const JudgedOutput& row : rows) {
    const double off = row.wanted - wanted / count;
    spread += off * off;
  }
  of.rmse = std::sqrt(squares / count);  // of no rows NaN, as all these
  of.mae = absolute / count;
  of.bias = errors / count;
  of.r2 = spread > 0 ? 1 - squares / spread : nothing;
  return of;
}

TaskScores judge_rows(const SaidRows& mine, const data::DataSet& rows, comm::Control& control) {
  const data::DataSetInfo& info = rows.info();
  const std::size_t outputs = info.wanted_values();
  check(mine.outputs.size() == mine.rows.size() * outputs, "all outputs of each row");
  const auto rows_of_ranks =
      comm::gather_records_at_root(control, mine.rows, "evaluation: rows of outputs");
  TaskScores judged;
  std::vector<RowCounts> counts(rows_of_ranks.empty() ? 0 : info.rows);
  for (std::size_t k = 0; k < outputs; ++k) {
    const std::vector<float> column =
        gather_column(mine, k, outputs, rows_of_ranks, info.rows, control);
    if (!rows_of_ranks.empty()) judged.outputs.push_back(judge_column(column, k, rows, counts));
  }
  if (!rows_of_ranks.empty()) {
    if (info.task == data::Task::labels) {
      sum_up_labels(judged, counts);
    } else {
      put_mean(judged, "RMSE", &OutputFigures::rmse);
      put_mean(judged, "MAE", &OutputFigures::mae);
      put_mean(judged, "R2", &OutputFigures::r2);
      put_mean(judged, "bias", &OutputFigures::bias);
    }
  }
  return comm::broadcast_record(control, judged, "evaluation: scores");
}

}  // namespace lockstep::train
