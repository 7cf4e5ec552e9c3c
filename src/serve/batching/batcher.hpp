#pragma once

// One thread computes, for all models in turn. It takes what waits for a model, up to the largest
// batch, and never waits for more: under load the next batch fills while one is computed.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/backend/inference/classifier.hpp"
#include "lockstep/backend/parameters.hpp"
#include "lockstep/device/device.hpp"
#include "serve/batching/statistics.hpp"

namespace lockstep::serve {

/// Rows of one request, and what becomes of them.
struct RowsJob {
  std::vector<std::uint8_t> images;  ///< [rows, height, width, channels]
  std::size_t rows = 0;
  double arrived_s = 0, deadline_s = 0;  ///< on the clock of now_s()
  std::vector<float> logits;             ///< [rows, classes], once they are computed
  /// How it ended; called once, on any thread, and must neither wait nor throw.
  enum class End { computed, late, failed };
  std::function<void(End)> ended;

  // The batcher's:
  std::size_t begun = 0;  ///< rows that are in a batch, or were
  bool failed = false;    ///< a batch with some of them
};

/// What computes one version of a model, and the rows that wait for it. Made, and given up, by the
/// thread that computes.
struct Lane {
  std::vector<std::unique_ptr<backend::Parameters>> parameters;  ///< of each network
  std::unique_ptr<backend::Classifier> model;                    ///< takes batches of any rows
  std::size_t batch = 0;                                         ///< rows that it gets, at most
  device::PinnedBuffer images;                                   ///< [batch, row_bytes]
  std::size_t row_bytes = 0, classes = 0;
  std::shared_ptr<Statistics> statistics;
  // The batcher's:
  std::deque<std::shared_ptr<RowsJob>> waiting;
  std::size_t waiting_rows = 0;
};

/// **Thread safety:** any thread may call all methods but turn(), which the one thread that
/// computes calls.
class Batcher {
 public:
  /// `most_waiting_rows`: of each lane.
  explicit Batcher(std::size_t most_waiting_rows) : most_waiting_rows_(most_waiting_rows) {}
  ~Batcher();
  /// From now on the lane's rows are computed; until no one else holds the lane and none waits.
  void add(std::shared_ptr<Lane> lane);
  /// False when the lane has no room for its rows.
  bool put(const std::shared_ptr<Lane>& lane, std::shared_ptr<RowsJob> job);
  /// Does this on the thread that computes, between two batches.
  void between_batches(std::function<void()> task);
  /// Computes one batch and does one task. If there are none, waits for up to `patience_s`.
  void turn(double patience_s);
  /// Ends what has waited beyond its deadline.
  void end_late(double now_s);
  std::size_t waiting_rows(const Lane& lane) const;

 private:
  /// A part of a job that is in a batch.
  struct Part {
    std::shared_ptr<RowsJob> job;
    std::size_t first = 0, rows = 0;
  };
  std::shared_ptr<Lane> next_lane();
  std::vector<Part> take_batch(Lane& lane);
  static void compute(Lane& lane, const std::vector<Part>& batch);
  static void run(Lane& lane, const std::vector<Part>& batch);
  static void account(Lane& lane, const std::vector<Part>& batch, double began_s);

  const std::size_t most_waiting_rows_;
  mutable std::mutex mutex_;
  std::condition_variable something_;
  std::deque<std::shared_ptr<Lane>> lanes_;  ///< the first is next
  std::deque<std::function<void()>> tasks_;
};

}  // namespace lockstep::serve
