#pragma once

// Requests share a few threads: each does one step of one request at a time. The next step is the
// one that would end first if all requests advanced at the same time and speed, so a small
// request passes large ones, and each of these has its turn. Steps that take long never have all
// threads: one is always left for the others.

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::serve {

/// How far one request has come.
struct Flow {
  double end_s = 0;  ///< of its last step, in the time of Readers
};

/// **Thread safety:** any thread may call all methods.
class Readers {
 public:
  /// From about this on, a step takes long.
  static constexpr double long_s = 0.03;
  /// At least two threads. `enter`: called first on each.
  Readers(std::size_t threads, const std::function<void()>& enter);
  ~Readers() { stop(1e9); }
  /// Does this when its turn has come. It must not throw. `cost_s`: about what it takes. `flow`: of
  /// its request, which lives until it is done or forgotten. Does nothing after stop().
  void post(Flow& flow, double cost_s, std::function<void()> step);
  /// Its steps that have not begun are not done.
  void forget(const Flow& flow);
  /// Forgets all steps, and waits for those that have begun, but no longer than this. False when
  /// some have not ended.
  bool stop(double patience_s);

 private:
  struct Step {
    const Flow* flow;
    std::function<void()> work;
  };
  using Steps = std::multimap<double, Step>;  ///< by their ends
  Steps* next();
  void work();

  std::mutex mutex_;
  std::condition_variable something_, less_;
  Steps short_, long_;
  double time_s_ = 0;  ///< the end of the step that began last
  std::size_t most_long_, long_running_ = 0, working_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::serve
