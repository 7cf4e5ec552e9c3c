#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/control.hpp"
#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "lockstep/data/loading/sampler.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::train {

/// What random rows for a resolved configuration are like: data.size pixels wide and high, of
/// data.classes classes; 0: as the model is usually trained. As many as a step takes.
data::DataSetInfo synthetic_rows(const config::Config& config);

/// What the rows are like that a training with these keys delivers. Throws InputError as opening
/// its training set does.
data::DataSetInfo trained_rows(const config::Config& config);

/// What is decided about data sets. Of other programs' files: what their numbers become, and what
/// is learned. Of all: the numbers of data.clip.
struct DataChoices {
  config::ElementChoice element = config::ElementChoice::automatic;
  config::TaskChoice task = config::TaskChoice::automatic;
  std::string clip = {};
};

/// The rows of one run: its training and validation set, the order in which this replica reads
/// them, and the loader that delivers them as batches. Every rank has one and makes the same calls;
/// of a replica's ranks, that of the first stage has the loader, and the others' batches say only
/// how many rows there are.
/// Methods throw InputError as the data set and the loader do.
/// **Thread safety:** none; the main thread uses it. The loader's threads are inside.
class RunData {
 public:
  /// Opens both sets, or none where the rows are synthetic: then there is nothing to load. Throws
  /// InputError when they do not fit each other, the configuration or those of the other ranks.
  /// Collective. The references must outlive this. `begun_with`: what the run that it resumes has
  /// made of other programs' files, where the configuration leaves it open.
  RunData(const RunSpec& spec, comm::Control& control, const DataChoices& begun_with = {});

  const DataSets& sets() const { return sets_; }
  /// What became of other programs' files and of data.clip; else what the configuration says.
  DataChoices choices() const;
  /// The training rows as the network sees them.
  const data::DataSetInfo& input() const { return input_; }
  const data::DataSet* validation() const { return validation_ ? &*validation_ : nullptr; }
  data::AugmentSpec validation_augment() const;
  /// backend::LossSpec::weights of the training.
  const std::vector<float>& loss_weights() const { return loss_weights_; }
  std::uint64_t steps_per_epoch() const { return sampler_->batches(); }
  std::size_t dropped_rows() const { return sampler_->dropped(); }
  std::size_t global_rows(std::uint64_t batch) const { return sampler_->part(batch).global_rows; }
  /// Of all ranks, from the beginning of the run to `batch` batches into `epoch`.
  std::uint64_t rows_until(std::uint64_t epoch, std::uint64_t batch) const;
  std::size_t loader_threads() const;
  /// What the loader's batches will take; 0 where rows are synthetic.
  std::size_t loader_bytes() const;

  /// Has both sets copied to the folder of data.stage. Call it before start_loader(). Collective.
  void copy_to_nodes();
  /// How a loader brings this rank's rows from `progress` on, with the threads of the run: it may
  /// measure how many. Empty if no step is left.
  std::optional<data::LoaderSpec> loading(const model::Progress& progress,
                                          const device::Device& device);
  const data::DataSet& training() const { return training_.value(); }
  /// Call it once, after copy_to_nodes(). Loads from `progress` on; nothing if no step is left.
  void start_loader(const model::Progress& progress, device::Device& device);

  /// This rank's part of batch number `batch` of the epoch; batches come in order. Waits.
  data::Batch next(std::uint64_t batch);
  /// What next() will return for `batch`; empty if next() would have to wait, or the epoch has no
  /// such batch.
  std::optional<NextBatch> look_ahead(std::uint64_t batch);
  /// A text for each broken row that the loader replaced in a batch that it lent.
  std::vector<std::string> bad_rows(const data::Batch& batch) const;
  void release(const data::Batch& batch);
  /// The memory of the loader's batches.
  std::vector<std::span<const std::byte>> loader_memory() const;

 private:
  void require_effects_fit() const;
  void open_sets(const DataChoices& begun_with);
  void open_validation();
  void choose_order();
  void choose_weights();
  void measure_workers(const data::LoaderSpec& loading);

  const RunSpec& spec_;
  const config::Config& config_;
  comm::Control& control_;
  DataSets sets_;
  std::optional<data::DataSet> training_;  ///< empty: synthetic
  std::optional<data::DataSet> validation_;
  data::AugmentSpec augment_;  ///< of training rows
  data::DataSetInfo input_;
  std::optional<data::Sampler> sampler_;
  std::vector<float> loss_weights_;
  std::size_t measured_workers_ = 0;         ///< 0: not measured
  std::optional<data::Loader> loader_;       ///< empty when no step is left, and in later stages
  std::optional<data::Batch> looked_ahead_;  ///< lent already, being copied to the device
};

}  // namespace lockstep::train
