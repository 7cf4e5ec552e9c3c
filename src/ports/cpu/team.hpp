#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::cpu {

/// The compute threads of one rank. run(work) calls work(lane) once for each lane, lane 0 on the
/// calling thread, and returns when all have finished; it throws an exception of any lane again.
/// Each thread is bound to its own CPUs and calls oneDNN on its own, one thread per call: there is
/// no OpenMP team whose members wait for one that the system has descheduled. A waiting lane spins
/// briefly, then sleeps. **Thread safety:** only one thread calls run().
class Team {
 public:
  /// One lane for each set of CPUs. With an empty set the system places the thread.
  explicit Team(const std::vector<std::vector<int>>& cpus);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  std::size_t lanes() const { return lanes_; }
  void run(const std::function<void(std::size_t lane)>& work);

 private:
  void start(std::size_t lane, const std::vector<int>& cpus);
  void stop();
  void serve(std::size_t lane);
  void call(std::size_t lane);

  std::size_t lanes_;
  std::vector<std::thread> threads_;
  const std::function<void(std::size_t)>* work_ = nullptr;
  std::atomic<unsigned> round_{0};    // counts run() calls; threads wait for it to change
  std::atomic<unsigned> working_{0};  // lanes of this round that have not finished
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> started_{0};  // threads that are bound, or failed to bind
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace lockstep::cpu
