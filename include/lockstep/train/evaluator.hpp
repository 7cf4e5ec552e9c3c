#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/loading/sampler.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/infer/classifier.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/train/scores.hpp"

namespace lockstep::train {

struct EvaluatorSpec {
  nn::Network network;
  backend::ProgramSpec program;  ///< batch: rows of one replica's batch; training is ignored
  data::AugmentSpec augment;     ///< see evaluation_augment()
  comm::GridAxis replicas;       ///< they share the rows
  /// Rows are shared in blocks of program.batch, so that sums are the same on any number of ranks.
  bool whole_blocks = false;
  std::size_t workers = 1;
  std::function<void()> bind_worker;  ///< see LoaderSpec
  std::function<bool()> stop;         ///< optional; true on one rank: all stop after the same batch
  /// Optional; called after each batch with the rows that are done, of all ranks.
  std::function<void(std::size_t done)> progress = {};
  /// Optional; called after each batch that has rows of this rank, while its results can be read.
  std::function<void(const data::Batch& batch)> seen = {};
};

/// How many rows of one class were taken for one class, which may be the same.
struct Confused {
  std::uint32_t label = 0, predicted = 0;
  std::uint64_t count = 0;

  bool operator==(const Confused&) const = default;
  static void fields(auto& self, auto&& visit) { visit(self.label, self.predicted, self.count); }
};

/// The result over all ranks. Each row of the data set counts exactly once.
struct Evaluation {
  bool stopped = false;  ///< EvaluatorSpec::stop was true: nothing below is filled
  std::uint64_t rows = 0;
  observe::Validation mean;            ///< top-1 and top-5 are NaN where the task is not classes
  std::vector<OutputFigures> outputs;  ///< where the task is not classes
  /// Ascending by label, then predicted class; each pair that occurred is in it once. Only on rank
  /// 0, and only where it was asked for.
  std::vector<Confused> confusion;

  std::span<const Confused> confusion_of(std::size_t label) const;  ///< of that true class
  std::uint64_t rows_of(std::size_t label) const;
  double accuracy_of(std::size_t label) const;  ///< NaN for a class without rows
};

/// Rank 0 gets the sums of all ranks' counts, the others nothing. `mine` may have a pair more than
/// once. The ranks send it in pieces, `at_once` counts of all ranks together, so that neither a
/// message nor rank 0's memory grows with ranks or classes. Collective.
std::vector<Confused> gather_confusion(comm::Control& control, std::vector<Confused> mine,
                                       std::size_t at_once = std::size_t{1} << 21);

/// Runs a network forward over a whole data set, with running statistics. The last batch is padded
/// and the padding masked, so that every row counts once for any number of ranks and rows. The
/// references must outlive the evaluator; the parameters may change between evaluations.
/// **Thread safety:** none; one thread uses it.
class Evaluator {
 public:
  Evaluator(const EvaluatorSpec& spec, backend::Backend& backend, backend::Parameters& parameters,
            comm::Control& control, const data::DataSet& rows);
  /// The same of a model that is made already, for batches of spec.program.batch rows; spec.network
  /// is not used.
  Evaluator(const EvaluatorSpec& spec, device::Device& device, infer::Classifier& model,
            comm::Control& control, const data::DataSet& rows);
  /// Of a rank that has no part of the rows, and only meets the others. `spec` is that of a rank
  /// that has one.
  Evaluator(const EvaluatorSpec& spec, device::Device& device, comm::Control& control,
            const data::DataSet& rows);
  /// Collective. All ranks get the same result, but `confusion`. They meet after every batch, so
  /// that the deadline applies to one batch and not to the data set. with_confusion: also fills
  /// `confusion`, with at most one entry a row.
  Evaluation evaluate(bool with_confusion = false);

 private:
  /// counts: of classes, see class_scores(); else empty.
  backend::Metrics evaluate_batch(const data::Batch& batch, std::vector<double>& counts,
                                  std::vector<Confused>* confusion);
  void take_outputs(const data::Sampler& sampler, const data::Batch& batch, SaidRows& said);
  EvaluatorSpec spec_;
  device::Device& device_;
  comm::Control& control_;
  const data::DataSet& rows_;
  std::unique_ptr<infer::Classifier> own_;  ///< what model_ is, unless it was given
  infer::Classifier* model_;                ///< null: it has no part of the rows
};

}  // namespace lockstep::train
