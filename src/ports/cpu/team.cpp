// Why the CPU backend has a team of threads instead of OpenMP. Each lane calls oneDNN with one
// thread, so no lane waits inside a call for a thread that the system has descheduled. Partial sums
// are kept by chunk and added in order, so the bits do not depend on timing.
#include "ports/cpu/team.hpp"

#include <omp.h>

#include <string>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/processor.hpp"
#include "lockstep/cluster/topology/bind.hpp"

namespace lockstep::cpu {

namespace {

// About 50 us: longer than the usual gap between two regions of a step, shorter than a scheduler's
// time slice.
constexpr int spins = 4000;

void wait_while_equal(const std::atomic<unsigned>& value, unsigned old) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_spinning();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

Team::Team(const std::vector<std::vector<int>>& cpus) : lanes_(cpus.empty() ? 1 : cpus.size()) {
  if (!cpus.empty() && !cpus[0].empty()) cluster::bind_thread(cpus[0]);
  omp_set_num_threads(1);  // per thread: oneDNN must not start its own team inside a lane
  try {
    for (std::size_t lane = 1; lane < lanes_; ++lane)
      threads_.emplace_back([this, lane, set = cpus[lane]] { start(lane, set); });
  } catch (...) {
    stop();
    throw Error("the system cannot start " + std::to_string(lanes_) +
                " compute threads: use fewer (--threads)");
  }
  for (std::size_t n = started_.load(); n + 1 < lanes_; n = started_.load()) started_.wait(n);
}

Team::~Team() { stop(); }

void Team::start(std::size_t lane, const std::vector<int>& cpus) {
  try {
    if (!cpus.empty()) cluster::bind_thread(cpus);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
  omp_set_num_threads(1);
  started_.fetch_add(1);
  started_.notify_one();
  serve(lane);
}

void Team::stop() {
  stop_.store(true);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::call(std::size_t lane) {
  try {
    (*work_)(lane);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void Team::serve(std::size_t lane) {
  unsigned seen = 0;
  while (true) {
    wait_while_equal(round_, seen);
    const unsigned now = round_.load(std::memory_order_acquire);
    if (now == seen) continue;  // a spurious wake-up
    seen = now;
    if (stop_.load()) return;
    call(lane);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

void Team::run(const std::function<void(std::size_t lane)>& work) {
  work_ = &work;
  if (lanes_ > 1) {
    working_.store(static_cast<unsigned>(lanes_ - 1), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }
  call(0);
  for (unsigned left = working_.load(std::memory_order_acquire); left != 0;
       left = working_.load(std::memory_order_acquire))
    wait_while_equal(working_, left);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace lockstep::cpu
