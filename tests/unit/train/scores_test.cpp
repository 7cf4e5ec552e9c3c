#include "lockstep/train/scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "tests/unit/data/shard_fixture.hpp"
#include "tests/unit/ports/tcp/tcp_ranks.hpp"

using namespace lockstep;
using namespace lockstep::train;
using Catch::Matchers::Contains;

namespace {

constexpr std::size_t scored_rows = 1007, scored_labels = 4;

/// The generator of C's standard, which the constants below were computed with.
std::vector<std::uint32_t> drawn(std::uint32_t seed) {
  std::vector<std::uint32_t> numbers;
  std::uint64_t x = seed;
  for (std::size_t i = 0; i < scored_rows * scored_labels; ++i) {
    x = (1103515245 * x + 12345) % (std::uint64_t{1} << 31);
    numbers.push_back(static_cast<std::uint32_t>(x >> 16));
  }
  return numbers;
}

/// Many equal logits; label 2 applies to no row, label 3 to all.
std::vector<JudgedOutput> label_rows(std::size_t k) {
  static const std::vector<std::uint32_t> a = drawn(7), b = drawn(11);
  constexpr std::uint32_t percent[] = {50, 7, 0, 100};
  std::vector<JudgedOutput> rows;
  for (std::size_t row = 0; row < scored_rows; ++row) {
    const std::size_t at = row * scored_labels + k;
    const float wanted = b[at] % 100 < percent[k] ? 1 : 0;
    const float noise = static_cast<float>(static_cast<int>(a[at] % 41) - 20) / 4;
    rows.push_back({noise + wanted * 1.5f, wanted});
  }
  return rows;
}

bool close(double got, double want) { return std::abs(got - want) <= 1e-9; }

}  // namespace

// The figures of scikit-learn 1.7 on these rows: average_precision_score, roc_auc_score,
// precision_score, recall_score; root_mean_squared_error, mean_absolute_error, r2_score.
TEST_CASE("figures of labels are scikit-learn's, with ties, an empty and a full label",
          "[train][scores]") {
  const OutputFigures half = judge_label(label_rows(0)), few = judge_label(label_rows(1)),
                      none = judge_label(label_rows(2)), all = judge_label(label_rows(3));
  CHECK(close(half.ap, 0.68048287285801656));
  CHECK(close(few.ap, 0.29167827285103953));
  CHECK(std::isnan(none.ap));
  CHECK(close(all.ap, 1));
  CHECK(close(half.auc, 0.63545741948231571));
  CHECK(close(few.auc, 0.65894253711558848));
  CHECK((std::isnan(none.auc) && std::isnan(all.auc)));
  CHECK(close(half.precision, 0.58453237410071945));
  CHECK(close(few.precision, 0.081510934393638171));
  CHECK((none.precision == 0 && none.recall == 0 && none.f1 == 0));
  CHECK(close(half.recall, 0.61904761904761907));
  CHECK(close(few.recall, 0.640625));
  CHECK(close((half.f1 + few.f1 + none.f1 + all.f1) / 4, 0.38443938502335706));
  CHECK(half.right + half.wrong + half.missed + half.rightly_not == scored_rows);
}

TEST_CASE("the order of the rows changes no bit of a label's figures", "[train][scores]") {
  std::vector<JudgedOutput> rows = label_rows(1);
  const OutputFigures one = judge_label(rows);
  std::ranges::reverse(rows);
  std::ranges::rotate(rows, rows.begin() + 300);
  const OutputFigures other = judge_label(rows);
  CHECK((one.ap == other.ap && one.auc == other.auc && one.f1 == other.f1));
}

TEST_CASE("a logit that is not a number is always wrong", "[train][scores]") {
  const float bad = std::numeric_limits<float>::quiet_NaN();
  const OutputFigures of = judge_label({{bad, 1}, {bad, 0}, {1, 1}, {-1, 0}});
  CHECK((of.right == 1 && of.missed == 1 && of.wrong == 1 && of.rightly_not == 1));
  CHECK(of.auc == 0.25);
}

TEST_CASE("a label that is known in no row has no figure", "[train][scores]") {
  const OutputFigures of = judge_label({});
  CHECK(of.known == 0);
  for (const double figure : {of.precision, of.recall, of.f1, of.ap, of.auc})
    CHECK(std::isnan(figure));
}

TEST_CASE("figures of values are scikit-learn's, in the file's units", "[train][scores]") {
  const std::vector<std::uint32_t> a = drawn(7), b = drawn(11);
  std::vector<JudgedOutput> rows;
  for (std::size_t row = 0; row < scored_rows; ++row)
    rows.push_back({static_cast<float>(a[row * scored_labels] % 1000 / 250.0 - 2),
                    static_cast<float>(101325 + b[row * scored_labels] % 1000 / 8.0)});
  const OutputFigures of = judge_value(rows, 101387.5, 37.5);
  CHECK(close(of.rmse, 55.123426308619322));
  CHECK(close(of.mae, 45.417378333501489));
  CHECK(close(of.r2, -1.3865595364674101));
  CHECK(close(of.bias, -0.17989073349639234));
  CHECK(std::isnan(judge_value({{0, 5}, {1, 5}}, 5, 1).r2));
}

TEST_CASE("a score is chosen by its name, or as is usual for the task", "[train][scores]") {
  using enum data::Task;
  CHECK(score_kind(classes, "").name == std::string("top-1"));
  CHECK(kept_name(score_kind(classes, "")).empty());
  CHECK(score_kind(labels, "").name == std::string("mAP"));
  CHECK(kept_name(score_kind(values, "")) == "RMSE");
  CHECK(score_kind(values, "").is_better(2, 1));
  CHECK(score_kind(values, "R2").is_better(1, 2));
  CHECK_FALSE(score_kind(labels, "micro-F1").is_better(0.5, 0.5));
  CHECK_THROWS_WITH(score_kind(labels, "top-1"),
                    Contains("eval.best = top-1 is no score of labels; there are mAP, AUC"));
  const observe::Validation validation{.loss = 3, .top1 = 0.5, .top5 = 1, .scores = {{"AUC", 0.7}}};
  CHECK(score_in(validation, score_kind(classes, "top-5")) == 1);
  CHECK(score_in(validation, score_kind(labels, "loss")) == 3);
  CHECK(score_in(validation, score_kind(labels, "AUC")) == 0.7);
  CHECK_FALSE(score_in(validation, score_kind(labels, "mAP")).has_value());
}

// balanced_accuracy_score and f1_score(average="macro", zero_division=0) of scikit-learn 1.9.
TEST_CASE("scores of classes are scikit-learn's, with one that is only said and one in no row",
          "[train][scores]") {
  const std::vector<std::uint32_t> a = drawn(7), b = drawn(11);
  std::vector<double> counts(6 * 3);
  for (std::size_t row = 0; row < scored_rows; ++row) {
    const std::size_t at = row * scored_labels;
    const std::size_t label = b[at] % 100 < 60 ? 0 : b[at + 1] % 4,
                      said = a[at] % 10 < 4 ? label : a[at + 1] % 5;
    counts[3 * label] += 1;
    counts[3 * said + 1] += 1;
    counts[3 * label + 2] += said == label;
  }
  const observe::Scores scores = class_scores(counts);
  CHECK(close(scores.at("balanced-accuracy"), 0.5331296176605683));
  CHECK(close(scores.at("macro-F1"), 0.36774144292669664));
  CHECK(class_scores(std::vector<double>(6)).empty());
}

// roc_auc_score of the softmax: of three classes with multi_class="ovr", of two by the second one.
TEST_CASE("the AUC of classes is scikit-learn's, and has the same bits on any ranks",
          "[train][scores]") {
  const test::Folder folder;
  const std::vector<std::uint32_t> a = drawn(7);
  for (const auto& [classes, want] :
       {std::pair{std::size_t{3}, 0.7264254802913966}, {std::size_t{2}, 0.7368941115213481}}) {
    data::DataSetInfo info = test::small_info();
    info.classes.resize(classes);
    const auto path = folder.path / (std::to_string(classes) + ".h5");
    const data::DataSet rows(test::write_shard(path, info, 0, scored_rows));
    const auto judged = [&](comm::Control& control) {
      SaidRows mine;
      for (auto row = static_cast<std::size_t>(control.rank()); row < scored_rows;
           row += static_cast<std::size_t>(control.world())) {
        mine.rows.push_back(static_cast<std::uint32_t>(row));
        for (std::size_t k = 0; k < classes; ++k) {
          const auto noise = static_cast<float>(a[row * scored_labels + k] % 4099) / 1024;
          mine.outputs.push_back(noise + (row % classes == k ? 0.75f : 0));
        }
      }
      return judge_rows(mine, rows, control).scores.at("AUC");
    };
    comm::LoneControl alone;
    const double one = judged(alone);
    CHECK(close(one, want));
    for (const int world : {2, 5})
      for (const std::string& told : test::ranks_tell(world, [&](comm::Control& control) {
             return std::to_string(judged(control) == one);
           }))
        CHECK(told == "1");
  }
}

TEST_CASE("AUC of more outputs than are ranked is an error where it was asked for",
          "[train][scores]") {
  data::DataSetInfo rows = test::small_info();
  rows.rows = most_ranked_outputs / 3 + 1;
  CHECK_NOTHROW(require_score(rows, "macro-F1", "val.h5"));
  CHECK_THROWS_WITH(require_score(rows, "AUC", "val.h5"), Contains("eval.best = AUC: val.h5 has"));
  rows.rows -= 1;
  CHECK_NOTHROW(require_score(rows, "AUC", "val.h5"));
}
