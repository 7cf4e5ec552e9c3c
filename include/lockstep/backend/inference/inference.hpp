#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/inference/classifier.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::backend {

/// Runs one network forward, with running statistics. The references must outlive it; the
/// parameters may change between batches.
class Inference final : public Classifier {
 public:
  /// Compiles a program for batches of spec.batch rows. Of `spec`, training and label smoothing are
  /// ignored.
  Inference(Backend& backend, const nn::Network& network, const ProgramSpec& spec,
            Parameters& parameters);
  /// The first batch of a capacity other than spec.batch has a program compiled for it.
  void run(const data::Batch& batch) override;
  Metrics take_metrics() override;  ///< waits for the device
  /// The first call after run() waits for the device.
  std::span<const float> logits(std::size_t row) override;

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
