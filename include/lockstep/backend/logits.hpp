#pragma once

// What the logits of one row say.

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "lockstep/data/batch.hpp"

namespace lockstep::backend {

/// The class with the largest logit, the first of equal ones. A row of a known `label` is judged by
/// the rule of top-1: if any logit is not a number, it gets another class.
std::size_t predicted_class(std::span<const float> logits, std::size_t label = 0);

/// The logarithm of the sum of exp(logit), in double precision; NaN if any logit is.
double log_sum(std::span<const float> logits);

/// The probability of the likeliest class, by the softmax in double precision; NaN if any logit is.
double top_probability(std::span<const float> logits);

/// The softmax in double precision.
std::vector<double> probabilities_of(std::span<const float> logits);

/// Adds one row of classes to the metrics, unless it is padding.
void count_row(Metrics& metrics, std::span<const float> logits, const data::Target& target);

/// The loss of one row, which is added to the metrics, unless it is padding. Of classes, the cross
/// entropy against (1 - smoothing) * (mix at label a, 1 - mix at label b) + smoothing / classes, in
/// which each class's share is multiplied by its weight. Of labels and values, the sum over the
/// known outputs (see output_loss.hpp) by the number of all. So it depends on the row alone: the
/// mean loss of a global batch is the sum of its rows' losses by their number, also with weights
/// and unknown outputs, and ranks and micro-batches cannot change it. PyTorch divides in the same
/// way where cross_entropy() is given shares of classes and binary_cross_entropy_with_logits() a
/// pos_weight. For numbers of classes it divides by the sum of the batch's weights instead; where
/// the mean weight of the training rows is 1, as a run's weights are, that is the same on average.
/// `wanted`: see data::Batch. If `gradient` is given, writes scale * d loss / d logits there: 0 for
/// padding and for an output that is not known. NaN logits of known outputs give a NaN loss.
void row_loss(const LossSpec& spec, std::span<const float> logits, const data::Target& target,
              const float* wanted, float scale, Metrics& metrics, float* gradient);

}  // namespace lockstep::backend
