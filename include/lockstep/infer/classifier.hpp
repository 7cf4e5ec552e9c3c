#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/logits.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::infer {

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
  virtual backend::Metrics take_metrics() = 0;  ///< of all batches since the last call
  /// Of the last batch: [outputs] of a row, until the next run().
  virtual std::span<const float> logits(std::size_t row) = 0;
  /// Since the last call, in the order in which the model names its members; empty for one network.
  virtual std::vector<MemberFigures> take_figures() { return {}; }

  std::vector<double> probabilities(std::size_t row) {
    return backend::probabilities_of(logits(row));
  }
  /// predicted_class() of a row of the last batch.
  std::size_t predicted(std::size_t row, std::size_t label = 0) {
    return backend::predicted_class(logits(row), label);
  }
};

/// Runs one network forward, with running statistics. The references must outlive it; the
/// parameters may change between batches.
class Inference final : public Classifier {
 public:
  /// Compiles a program for batches of spec.batch rows. Of `spec`, training, label smoothing and
  /// the loss's weights are ignored.
  Inference(backend::Backend& backend, const nn::Network& network, const backend::ProgramSpec& spec,
            backend::Parameters& parameters);
  /// The first batch of a capacity other than spec.batch has a program compiled for it.
  void run(const data::Batch& batch) override;
  backend::Metrics take_metrics() override;  ///< waits for the device
  /// The first call after run() waits for the device.
  std::span<const float> logits(std::size_t row) override;

 private:
  backend::Program& program_for(std::size_t rows);
  backend::Backend& backend_;
  nn::Network network_;
  backend::ProgramSpec spec_;
  backend::Parameters& parameters_;
  std::map<std::size_t, std::unique_ptr<backend::Program>> programs_;  // by rows
  backend::Program* ran_ = nullptr;
  std::vector<float> logits_;  // of the last batch, once one was asked for
};

}  // namespace lockstep::infer
