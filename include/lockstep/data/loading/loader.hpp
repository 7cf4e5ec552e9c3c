#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/augment/mix.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/data/loading/sampler.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::data {

/// A broken row of a batch, and the row that replaces it.
struct Replaced {
  std::size_t place = 0;  ///< in the batch
  std::size_t row = 0, by = 0;
  std::string what;  ///< what is wrong, with the file and the row in it
};

struct LoaderSpec {
  SamplerSpec sampler;
  AugmentSpec augment;            ///< in evaluation without randomness
  MixSpec mix{};                  ///< mixes a rank's rows of one batch with each other
  bool replace_bad_rows = false;  ///< by rows that follow from (seed, epoch, row); else
                                  ///< a bad row ends the loading
  std::size_t workers = 1;        ///< threads that read and augment
  std::size_t slots = 4;          ///< batches in the ring
  std::size_t readahead = 0;  ///< how many rows ahead to ask for; 0: none, but for chunked data as
                              ///< many as keep the workers busy
  std::uint64_t epoch = 0;    ///< where to begin: a resume gives the sampler's position
  std::uint64_t batch = 0;    ///< index in that epoch of the first batch that next() returns; equal
                              ///< to the batches of an epoch: begin with the next epoch
  /// Epochs to go through, from `epoch` on; after the last, next() throws.
  std::uint64_t epochs = 0;
  /// Called first on each worker's thread (sets its CPU set); may be empty.
  std::function<void()> bind_worker;
};

/// Streams one rank's share of the epochs, ahead of the trainer and across the ends of epochs.
/// Workers read rows, augment them and fill a ring of batches in pinned memory. The content of a
/// batch does not depend on the number of workers or slots. next() returns the batches in order;
/// release() gives a slot back. next() throws BadRow or InputError when a row is unreadable, naming
/// the file and the row. It never touches the disk. `rows` and `device` must outlive the loader.
///
/// **Thread safety:** one thread uses a loader. It may be destroyed at any time, which invalidates
/// its batches.
class Loader {
 public:
  Loader(const DataSet& rows, const LoaderSpec& spec, device::Device& device);
  /// Rows of any source, which was told how they are augmented.
  Loader(const RowSource& rows, const LoaderSpec& spec, device::Device& device);
  ~Loader();
  Batch next();  ///< blocks until the batch is ready; rethrows a worker's error; throws Error when
                 ///< all slots are lent or the epochs are over
  bool ready() const;  ///< whether next() would return a batch at once
  /// The replaced rows of a lent batch, in order of place.
  std::span<const Replaced> replaced(const Batch& batch) const;
  void release(const Batch& batch);
  const Sampler& sampler() const;
  /// The memory of the ring's slots.
  std::vector<std::span<const std::byte>> memory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
