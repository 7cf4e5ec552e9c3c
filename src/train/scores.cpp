#include "lockstep/train/scores.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "lockstep/backend/logits.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::train {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
constexpr const char *top1 = "top-1", *top5 = "top-5", *loss_name = "loss";
constexpr const char *auc = "AUC", *macro_f1 = "macro-F1", *balanced = "balanced-accuracy";

/// The usual one first.
std::span<const ScoreKind> kinds_of(data::Task task) {
  static constexpr ScoreKind classes[] = {{top1},     {top5}, {balanced},
                                          {macro_f1}, {auc},  {loss_name, false}};
  static constexpr ScoreKind labels[] = {{"mAP"},           {auc},          {"micro-F1"},
                                         {macro_f1},        {"samples-F1"}, {"exact-match"},
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
    const double logit = rows[at].said;
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
  put_mean(to, auc, &OutputFigures::auc);
  put_mean(to, macro_f1, &OutputFigures::f1);
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

/// What `value_of` says of each of this rank's rows, of all ranks, by row; on rank 0.
template <class ValueOf>
auto gather_column(const SaidRows& mine, ValueOf value_of,
                   const std::vector<std::vector<std::uint32_t>>& rows_of_ranks, std::size_t rows,
                   comm::Control& control) {
  using Value = decltype(value_of(std::size_t{}));
  std::string bytes(mine.rows.size() * sizeof(Value), '\0');
  for (std::size_t i = 0; i < mine.rows.size(); ++i) {
    const Value value = value_of(i);
    std::memcpy(bytes.data() + i * sizeof(Value), &value, sizeof(Value));
  }
  const std::vector<std::string> parts = control.gather_at_root(bytes, "evaluation: outputs");
  std::vector<Value> column(parts.empty() ? 0 : rows);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const std::vector<std::uint32_t>& theirs = rows_of_ranks[rank];
    check(parts[rank].size() == theirs.size() * sizeof(Value), "an output of each row");
    for (std::size_t i = 0; i < theirs.size(); ++i)
      std::memcpy(&column.at(theirs[i]), parts[rank].data() + i * sizeof(Value), sizeof(Value));
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

void require_score(const data::DataSetInfo& rows, const std::string& name,
                   const std::string& path) {
  require(rows.task != data::Task::classes || name != auc ||
              rows.rows * rows.classes.size() <= most_ranked_outputs,
          fmt::format("eval.best = {}: {} has {} rows of {} classes, and AUC is made of at most {} "
                      "outputs: choose another score",
                      name, path, rows.rows, rows.classes.size(), most_ranked_outputs));
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
  constexpr double infinity = std::numeric_limits<double>::infinity();
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

namespace {

TaskScores judge_classes(const SaidRows& mine, const data::DataSet& rows, comm::Control& control) {
  const std::size_t count = rows.info().rows, classes = rows.info().classes.size();
  const auto rows_of_ranks =
      comm::gather_records_at_root(control, mine.rows, "evaluation: rows of outputs");
  std::vector<double> shares;
  for (std::size_t i = 0; i < mine.rows.size(); ++i) {
    const std::vector<double> of_row =
        backend::probabilities_of(std::span(mine.outputs).subspan(i * classes, classes));
    shares.insert(shares.end(), of_row.begin(), of_row.end());
  }
  TaskScores judged;
  for (std::size_t k = classes == 2 ? 1 : 0; k < classes; ++k) {
    const std::vector<double> column = gather_column(
        mine, [&](std::size_t i) { return shares[i * classes + k]; }, rows_of_ranks, count,
        control);
    std::vector<JudgedOutput> against_rest;
    for (std::size_t row = 0; row < column.size(); ++row)
      against_rest.push_back(
          {column[row], rows.labels()[row] == static_cast<std::int32_t>(k) ? 1.f : 0.f});
    if (!rows_of_ranks.empty()) judged.outputs.push_back(judge_label(std::move(against_rest)));
  }
  put_mean(judged, auc, &OutputFigures::auc);
  judged.outputs.clear();
  return comm::broadcast_record(control, judged, "evaluation: scores");
}

}  // namespace

observe::Scores class_scores(std::span<const double> counts) {
  double there = 0, recall = 0, either = 0, f1 = 0;
  for (std::size_t at = 0; at < counts.size(); at += 3) {
    const double rows = counts[at], said = counts[at + 1], right = counts[at + 2];
    there += rows > 0;
    either += rows > 0 || said > 0;
    recall += ratio(right, rows);
    f1 += f1_of(right, said - right, rows - right);
  }
  if (there == 0) return {};
  return {{balanced, recall / there}, {macro_f1, f1 / either}};
}

TaskScores judge_rows(const SaidRows& mine, const data::DataSet& rows, comm::Control& control) {
  const data::DataSetInfo& info = rows.info();
  const std::size_t outputs = info.classes.size();
  check(mine.outputs.size() == mine.rows.size() * outputs, "all outputs of each row");
  if (info.task == data::Task::classes) return judge_classes(mine, rows, control);
  const auto rows_of_ranks =
      comm::gather_records_at_root(control, mine.rows, "evaluation: rows of outputs");
  TaskScores judged;
  std::vector<RowCounts> counts(rows_of_ranks.empty() ? 0 : info.rows);
  for (std::size_t k = 0; k < outputs; ++k) {
    const std::vector<float> column = gather_column(
        mine, [&](std::size_t i) { return mine.outputs[i * outputs + k]; }, rows_of_ranks,
        info.rows, control);
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
