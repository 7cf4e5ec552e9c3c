#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::serve {

/// Threads that do tasks in their order.
/// **Thread safety:** any thread may call post().
class Readers {
 public:
  /// `enter`: called first on each thread.
  Readers(std::size_t threads, const std::function<void()>& enter);
  ~Readers() { stop(); }
  /// Does nothing after stop(). The task must not throw.
  void post(std::function<void()> task);
  /// Waits for the tasks that have begun, and forgets the others.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable something_;
  std::deque<std::function<void()>> tasks_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::serve
