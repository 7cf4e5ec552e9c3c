#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/files/files.hpp"

namespace lockstep {

/// Makes files durable on a separate thread, one after the other, while its user continues. Each
/// file appears complete or not at all, as by write_text_atomically(). A file system that does not
/// answer costs only the wait of those who ask for it. The thread gives way to others that compute.
/// **Thread safety:** one thread uses it; an order's functions run on the writer's thread.
/// **Invariants:** orders are written in the order in which they came; nothing is written after one
/// that failed.
class BackgroundWriter {
 public:
  struct Order {
    std::string name;                          ///< for messages: "the checkpoint of step 12"
    std::uint64_t number = 0;                  ///< comes back in Written
    std::vector<std::filesystem::path> paths;  ///< each gets the bytes, in this order
    /// Of the first path, where more follows the bytes: the others are then other names of it.
    std::shared_ptr<PendingPieces> begun = nullptr;
    std::function<std::string_view()> bytes;  ///< they live as long as this function
    std::function<void()> before = {};        ///< called first; it may throw
    std::function<void()> durable = {};       ///< all paths are on the disk; it may throw
  };
  struct Written {
    std::uint64_t number = 0;
    std::size_t bytes = 0;
    double seconds = 0;  ///< from the order's turn until it was durable
  };

  /// `enter` is called first on the writer's thread. An order that takes longer than `patience_s`
  /// is named in a warning, and again when it is done.
  explicit BackgroundWriter(std::function<void()> enter = {}, double patience_s = 60);
  ~BackgroundWriter();  ///< waits until all orders are durable, or one has failed
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  void add(Order order);
  /// Forgets all unfinished orders but the oldest. Returns how many.
  std::size_t drop_waiting();
  std::size_t unfinished() const;  ///< orders that are neither durable nor dropped
  /// How long the order whose turn it is has been written; 0 without one.
  double seconds() const;
  /// What became durable since the last call. Warns of an order that takes long. Throws what an
  /// order has thrown, as write_text_atomically().
  std::vector<Written> poll();
  /// Waits until at most `most` orders are unfinished, and says so where that takes longer than a
  /// second. Throws as poll().
  void wait(std::size_t most = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
