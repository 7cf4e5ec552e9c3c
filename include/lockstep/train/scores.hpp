#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/control.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::train {

/// A score of a validation, by which one can be better than another.
struct ScoreKind {
  const char* name;
  bool more_is_better = true;
  bool is_better(double than, double score) const {
    return more_is_better ? score > than : score < than;
  }
};

/// The score that is named, or the usual one of the task where the name is empty. Throws InputError
/// naming eval.best and the scores that there are.
const ScoreKind& score_kind(data::Task task, const std::string& name);
/// The name of it that checkpoints keep: empty for top-1, which older ones have without a word.
std::string kept_name(const ScoreKind& kind);
/// Nothing where the validation set cannot tell it, as mAP without any label that applies.
std::optional<double> score_in(const observe::Validation& validation, const ScoreKind& kind);

/// Scores of steps in training, from backend::Metrics::sums: of labels F1, over all of them
/// (micro), of values R2, by the deviations of the training set.
observe::Scores step_scores(data::Task task, const std::array<double, 3>& sums);

/// Of classes, from how often each one is there, is said and both: [classes, 3]. As scikit-learn:
/// the balanced accuracy is the mean recall of those that are there, macro-F1 that of those that
/// are there or are said.
observe::Scores class_scores(std::span<const double> counts);

/// The most outputs, rows times classes, of which the AUC of classes is made: it takes memory and
/// time for each. Of more a validation has no AUC.
inline constexpr std::size_t most_ranked_outputs = std::size_t{1} << 22;
/// Throws InputError where rows as these are too many for the score that is named. `path`: theirs.
void require_score(const data::DataSetInfo& rows, const std::string& name, const std::string& path);

/// What a network said of some rows, and of which: [rows, outputs] logits, or values in deviations.
struct SaidRows {
  std::vector<std::uint32_t> rows;
  std::vector<float> outputs;
};

/// How one output did, over the rows in which it is known. NaN where that means nothing: AP without
/// a row to which the label applies; AUC, R2 where all rows are alike.
struct OutputFigures {
  std::uint64_t known = 0;
  /// Labels, which are said where the logit is above 0.
  std::uint64_t right = 0, wrong = 0, missed = 0, rightly_not = 0;
  double precision = 0, recall = 0, f1 = 0;  ///< of known rows 0 if there is nothing to divide by
  double ap = 0, auc = 0;
  double rmse = 0, mae = 0, r2 = 0, bias = 0;  ///< values, in the file's units

  static void fields(auto& self, auto&& visit) {
    visit(self.known, self.right, self.wrong, self.missed, self.rightly_not, self.precision,
          self.recall, self.f1, self.ap, self.auc, self.rmse, self.mae, self.r2, self.bias);
  }
};

/// One output of one row, both as the network's: a logit (or a probability) and 0 or 1, or two
/// values.
struct JudgedOutput {
  double said = 0;
  float wanted = 0;
};
/// `rows`: those in which the label is known, in any order. A logit that is not a number is wrong.
OutputFigures judge_label(std::vector<JudgedOutput> rows);
/// `rows`: those in which the value is known, in an order that does not depend on ranks.
/// `mean`, `deviation`: the value's units. `wanted` is in them, `said` is not.
OutputFigures judge_value(const std::vector<JudgedOutput>& rows, double mean, double deviation);

struct TaskScores {
  observe::Scores scores;              ///< by name; those that mean nothing are left out
  std::vector<OutputFigures> outputs;  ///< of each output

  static void fields(auto& self, auto&& visit) { visit(self.scores, self.outputs); }
};

/// Judges the rows of a data set, of which each rank has some; no row is there twice. The bits do
/// not depend on the number of ranks. Of classes this is the AUC alone: the mean of each class's
/// against the rest by its probability, of two classes the second one's. Collective.
TaskScores judge_rows(const SaidRows& mine, const data::DataSet& rows, comm::Control& control);

}  // namespace lockstep::train
