#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::backend {

/// Runs a network forward on batches, with running statistics, and says what it makes of each row.
/// The references must outlive it; the parameters may change between batches.
/// **Thread safety:** none; one thread uses it.
class Inference {
 public:
  /// Compiles a program for batches of spec.batch rows. Of `spec`, training and label smoothing are
  /// ignored.
  Inference(Backend& backend, const nn::Network& network, const ProgramSpec& spec,
            Parameters& parameters);
  /// Runs a batch, which must stay alive until its results were read. The first batch of a capacity
  /// other than spec.batch has a program compiled for it. Without targets it counts in no metrics.
  void run(const data::Batch& batch);
  Metrics take_metrics();  ///< of all batches since the last call; waits for the device

  // Of the last batch, by row. The first call after run() waits for the device.
  std::span<const float> logits(std::size_t row);  ///< [classes], until the next run()
  std::vector<double> probabilities(std::size_t row);
  /// The class with the largest logit, the first of equal ones. A row of a known `label` is judged
  /// by the rule of top-1: if any logit is not a number, it gets another class.
  std::size_t predicted(std::size_t row, std::size_t label = 0);

 private:
  Program& program_for(std::size_t rows);
  Backend& backend_;
  nn::Network network_;
  ProgramSpec spec_;
  Parameters& parameters_;
  std::map<std::size_t, std::unique_ptr<Program>> programs_;  // by rows
  Program* ran_ = nullptr;
  std::vector<float> logits_;  // of the last batch, once one was asked for
};

}  // namespace lockstep::backend
