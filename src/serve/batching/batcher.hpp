#pragma once

// One thread computes, for all models in turn. It takes what waits for a model, up to the largest
// batch. A batch that is not full waits only while requests are on their way to it: those that are
// being read, and clients whose last answer is being written, or has left just now, which may ask
// again. Else clients that ask again at once would split into two halves: each is read and answered
// while the other is computed, on the same cores, and small batches cost more for a row. It waits
// for at most half of the time that a whole batch takes, and then no longer counts what it waited
// for. With nothing on its way it starts at once.

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/backend/parameters.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/infer/classifier.hpp"

namespace lockstep::serve {

/// How often something happened, and how long it took in total.
struct Spent {
  std::uint64_t count = 0;
  double seconds = 0;
  void add(double took_s, std::uint64_t times = 1) {
    count += times;
    seconds += took_s;
  }
};

/// What a model has done since it was loaded first; in all its versions.
struct ModelFigures {
  Spent success, fail;  ///< requests, from their arrival to their answer
  /// Successful requests: waiting, preparation of their rows, the batches with some of them, their
  /// answers.
  Spent queue, input, infer, output;
  Spent compute;                              ///< batches
  std::map<std::size_t, Spent> batches;       ///< by the rows in them that were asked for
  std::vector<infer::MemberFigures> members;  ///< of a model that has several networks
  std::uint64_t rows = 0;                     ///< computed
  std::uint64_t refused = 0;                  ///< because the queue was full
  double last_s = 0;                          ///< when the last batch ended, in seconds since 1970
  /// Successful requests that took at most this long.
  static constexpr std::array<double, 12> bounds_s = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                                      0.1,   0.2,   0.5,   1,    2,    5};
  std::array<std::uint64_t, bounds_s.size()> within = {};
  void add_success(double took_s) {
    success.add(took_s);
    for (std::size_t k = 0; k < bounds_s.size(); ++k)
      if (took_s <= bounds_s[k]) ++within[k];
  }
};

/// Figures that several threads add to.
/// **Thread safety:** all methods.
class Statistics {
 public:
  template <class Change>
  void change(const Change& change) {
    const std::scoped_lock lock(mutex_);
    change(figures_);
  }
  ModelFigures figures() const {
    const std::scoped_lock lock(mutex_);
    return figures_;
  }

 private:
  mutable std::mutex mutex_;
  ModelFigures figures_;
};

struct Lane;
class Batcher;

/// A request from when it has come until its answer has left. While it is not in the queue, and no
/// batch waited for it in vain, it is on its way: batches wait for it.
/// **Thread safety:** all methods.
class Passage {
 public:
  Passage(Batcher& batcher, std::shared_ptr<Lane> lane);
  ~Passage() { end(); }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;
  void end();  ///< its answer has left, or its connection has ended

 private:
  friend class Batcher;
  Batcher& batcher_;
  const std::shared_ptr<Lane> lane_;
  // By the batcher's mutex:
  bool counted_ = false, ended_ = false;
  std::size_t round_ = 0;  ///< the lane's, when it was counted
};

/// Rows of one request, and what becomes of them.
struct RowsJob {
  std::vector<std::uint8_t> images;  ///< [rows, height, width, channels]
  std::size_t rows = 0;
  double arrived_s = 0, deadline_s = 0;  ///< on the clock of now_s()
  std::vector<float> logits;             ///< [rows, classes], once they are computed
  /// How it ended; called once, on any thread, and must neither wait nor throw.
  enum class End { computed, late, failed };
  std::function<void(End)> ended;
  std::shared_ptr<Passage> passage = nullptr;  ///< of its request; without: nothing waits for it

  // The batcher's:
  std::size_t begun = 0;  ///< rows that are in a batch, or were
  bool failed = false;    ///< a batch with some of them
  double waited_s = 0;    ///< until the first of them were
  double computed_s = 0;  ///< by all batches with some of them
};

/// What computes one version of a model, and the rows that wait for it. Made, and given up, by the
/// thread that computes.
struct Lane {
  std::vector<std::unique_ptr<backend::Parameters>> parameters;  ///< of each network
  std::unique_ptr<infer::Classifier> model;                      ///< takes batches of any rows
  std::size_t batch = 0;                                         ///< rows that it gets, at most
  device::PinnedBuffer images;                                   ///< [batch, row_bytes]
  std::size_t row_bytes = 0, classes = 0;
  std::shared_ptr<Statistics> statistics;
  // The batcher's:
  std::deque<std::shared_ptr<RowsJob>> waiting;
  std::size_t waiting_rows = 0;
  std::size_t on_their_way = 0;  ///< requests
  std::size_t round = 0;         ///< counts how often those on their way were given up
  double whole_batch_s = 0;      ///< about what a batch takes that has all rows
  std::size_t left = 0;          ///< answers, after which no request has come yet
  double left_until_s = 0;       ///< and for how long the next batch waits for that
  double patient_until_s = 0;    ///< the next batch waits until then; 0: it was not looked at yet
};

/// **Thread safety:** any thread may call all methods but turn(), which the one thread that
/// computes calls.
class Batcher {
 public:
  /// `most_waiting_rows`: of each lane.
  explicit Batcher(std::size_t most_waiting_rows) : most_waiting_rows_(most_waiting_rows) {}
  ~Batcher() { give_up(); }
  /// From now on the lane's rows are computed; until no one else holds the lane and none waits.
  void add(std::shared_ptr<Lane> lane);
  /// False when the lane has no room for its rows.
  bool put(const std::shared_ptr<Lane>& lane, std::shared_ptr<RowsJob> job);
  /// No one wants it any more. It is not told, and not computed unless it has begun.
  void forget(Lane& lane, const std::shared_ptr<RowsJob>& job);
  /// Does this on the thread that computes, between two batches.
  void between_batches(std::function<void()> task);
  /// Computes one batch and does one task. If there are none, waits for up to `patience_s`.
  void turn(double patience_s);
  /// Tells all that wait that they failed. REQUIRES: no other thread calls anything.
  void give_up();
  /// Ends what has waited beyond its deadline.
  void end_late(double now_s);
  std::size_t waiting_rows(const Lane& lane) const;
  /// For how long a batch that is not full waits now for requests on their way, at most.
  double longest_wait_s(const Lane& lane) const;

 private:
  friend class Passage;
  /// A part of a job that is in a batch.
  struct Part {
    std::shared_ptr<RowsJob> job;
    std::size_t first = 0, rows = 0;
  };
  void count(Passage& passage, bool on_its_way);
  void count_ended(Lane& lane, const std::vector<Part>& batch, double took_s);
  bool is_ready(Lane& lane, double now_s);
  void wait_for_batch(double patience_s);
  std::shared_ptr<Lane> next_lane(double now_s);
  std::vector<Part> take_batch(Lane& lane);
  void compute(Lane& lane, const std::vector<Part>& batch);
  static void run(Lane& lane, const std::vector<Part>& batch);
  static void account(Lane& lane, const std::vector<Part>& batch, double began_s);

  const std::size_t most_waiting_rows_;
  mutable std::mutex mutex_;
  std::condition_variable something_;
  std::deque<std::shared_ptr<Lane>> lanes_;  ///< the first is next
  std::deque<std::function<void()>> tasks_;
};

}  // namespace lockstep::serve
