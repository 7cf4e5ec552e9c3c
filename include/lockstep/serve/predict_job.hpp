#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/device/device.hpp"
#include "lockstep/infer/classifier.hpp"
#include "lockstep/model/model.hpp"
#include "lockstep/serve/input_rows.hpp"

namespace lockstep::serve {

/// What is predicted, and where to.
struct PredictSpec {
  std::filesystem::path out;         ///< shared by all workers
  std::vector<std::string> classes;  ///< of the network, or the names of its labels or values
  data::Task task = data::Task::classes;
  std::vector<float> target_mean = {}, target_stddev = {};  ///< of values
  std::size_t batch = 64;                                   ///< rows that are computed together
  std::size_t piece_rows = 0;  ///< rows that are claimed together; 0: see Pieces
  std::size_t top = 5;         ///< classes that are kept of a row, the likeliest first
  std::size_t features = 0;    ///< the network's outputs after the classes, which are kept
  bool logits = false;         ///< kept, too
  bool csv = false;            ///< also writes predictions.csv
  bool skip_unread = false;    ///< a row that cannot be read gets no class; else it is an error
  /// Identifies the network and how it computes: "key = value" in each line. With the rows and the
  /// fields above, all that the predictions follow from.
  std::string model;
  double beat_s = 5, stale_s = 60;  ///< see WorkFolderSpec
};

/// What one worker computes with.
struct PredictWorker {
  infer::Classifier& model;  ///< for batches of PredictSpec::batch rows
  device::Device& device;
  std::size_t readers = 1;            ///< threads that read rows
  std::function<void()> bind_reader;  ///< see LoaderSpec::bind_worker
  /// Whether this worker must end, or has no time for something that takes `needed_s`. Asked before
  /// each piece and each batch.
  std::function<bool(double needed_s)> stop;
};

/// What a file of predictions says in total, and what this worker did for it.
struct Predicted {
  bool finished = false;  ///< all rows are predicted; else this worker was stopped
  std::uint64_t rows = 0, labelled = 0, right = 0, unread = 0, no_numbers = 0;
  std::size_t pieces = 0;      ///< of the data set
  std::size_t own_pieces = 0;  ///< that this worker published
  std::uint64_t own_rows = 0;
  double own_s = 0;  ///< from its first row to its last piece
};

/// Whether a job has begun in this folder.
bool holds_job(const std::filesystem::path& folder);

/// One worker of a swarm that predicts some rows. Any number of workers, on any machines that share
/// the folder, may be started and killed at any time. Each takes pieces of rows that no other holds
/// (WorkFolder) and publishes what it predicted without replacing anything, so each row is in the
/// result once. When all pieces are there, one of them merges these. The result does not depend on
/// the workers.
class PredictJob {
 public:
  /// Makes the folder, or joins the job in it. Throws InputError naming the folder and what differs
  /// where another model, other rows or other options were predicted there.
  PredictJob(PredictSpec spec, const InputRows& rows);
  ~PredictJob();
  /// The result is complete, so there is no work for work().
  bool finished() const;
  /// Works until nothing is left, or `worker.stop`. Throws InputError naming a row that cannot be
  /// read, and as fail_by_system() where a file cannot be written.
  Predicted work(const PredictWorker& worker);
  /// What finished work says. REQUIRES: finished().
  Predicted result() const;

 private:
  struct Impl;
  class Stay;
  std::unique_ptr<Impl> impl_;
};

/// Lets the network also say what its last layer reads: the layer gets an output for each of its
/// inputs, which is that input times 1, plus the others times 0. So a finite feature keeps its
/// bits. The outputs follow those of the classes. Returns their number. Throws InputError where the
/// network does not end with one linear layer.
std::size_t add_features(model::Model& model);

}  // namespace lockstep::serve
