#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "lockstep/data/batch.hpp"

namespace lockstep::backend {

/// What one network of several has done, since it was asked last.
struct MemberFigures {
  std::string name;
  std::uint64_t runs = 0, rows = 0;
  double seconds = 0;
  MemberFigures& operator+=(const MemberFigures& more);
  static void fields(auto& self, auto&& visit) {
    visit(self.name, self.runs, self.rows, self.seconds);
  }
};

/// Adds figures to those of the same member, or as a new one.
void add_figures(std::vector<MemberFigures>& sum, const std::vector<MemberFigures>& more);

/// Says what it makes of each row of a batch: one network, or several that answer as one.
/// **Thread safety:** none; one thread uses it.
class Classifier {
 public:
  virtual ~Classifier() = default;
  /// Runs a batch, which must stay alive until its results were read. Without targets it counts in
  /// no metrics.
  virtual void run(const data::Batch& batch) = 0;
  virtual Metrics take_metrics() = 0;  ///< of all batches since the last call
  /// Of the last batch: [outputs] of a row, until the next run().
  virtual std::span<const float> logits(std::size_t row) = 0;
  /// Since the last call, in the order in which the model names its members; empty for one network.
  virtual std::vector<MemberFigures> take_figures() { return {}; }

  std::vector<double> probabilities(std::size_t row);
  /// predicted_class() of a row of the last batch.
  std::size_t predicted(std::size_t row, std::size_t label = 0);
};

/// The class with the largest logit, the first of equal ones. A row of a known `label` is judged by
/// the rule of top-1: if any logit is not a number, it gets another class.
std::size_t predicted_class(std::span<const float> logits, std::size_t label = 0);

/// The logarithm of the sum of exp(logit), in double precision; NaN if any logit is.
double log_sum(std::span<const float> logits);

/// The probability of the likeliest class, by the softmax in double precision; NaN if any logit is.
double top_probability(std::span<const float> logits);

/// Adds one row to the metrics, unless it is padding. Returns the logarithm of the sum of
/// exp(logit); 0 for padding.
double count_row(Metrics& metrics, std::span<const float> logits, const data::Target& target,
                 float smoothing = 0);

}  // namespace lockstep::backend
