#include "serve/batching/readers.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep::serve {

Readers::Readers(std::size_t threads, const std::function<void()>& enter)
    : most_long_(std::max<std::size_t>(threads, 2) - 1), working_(most_long_ + 1) {
  for (std::size_t i = 0; i <= most_long_; ++i)
    threads_.emplace_back([this, enter] {
      if (enter) enter();
      work();
    });
}

void Readers::post(Flow& flow, double cost_s, std::function<void()> step) {
  {
    const std::scoped_lock lock(mutex_);
    if (stopped_) return;
    flow.end_s = std::max(flow.end_s, time_s_) + cost_s;
    (cost_s < long_s ? short_ : long_).emplace(flow.end_s, Step{&flow, std::move(step)});
  }
  something_.notify_one();
}

void Readers::forget(const Flow& flow) {
  std::vector<std::function<void()>> forgotten;  // they may hold much: outside of the lock
  const std::scoped_lock lock(mutex_);
  for (Steps* steps : {&short_, &long_})
    std::erase_if(*steps, [&](auto& one) {
      if (one.second.flow != &flow) return false;
      forgotten.push_back(std::move(one.second.work));
      return true;
    });
}

bool Readers::stop(double patience_s) {
  Steps forgotten[2];
  std::unique_lock lock(mutex_);
  stopped_ = true;
  forgotten[0].swap(short_);
  forgotten[1].swap(long_);
  something_.notify_all();
  const bool ended = less_.wait_for(lock, std::chrono::duration<double>(patience_s),
                                    [this] { return working_ == 0; });
  lock.unlock();
  if (!ended) return false;
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
  return true;
}

/// The steps of which the first is next; null while there is nothing to do. REQUIRES: the lock.
Readers::Steps* Readers::next() {
  const bool may_long = !long_.empty() && long_running_ < most_long_;
  if (short_.empty()) return may_long ? &long_ : nullptr;
  return may_long && long_.begin()->first < short_.begin()->first ? &long_ : &short_;
}

void Readers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    something_.wait(lock, [this] { return stopped_ || next() != nullptr; });
    if (stopped_) break;
    Steps& from = *next();
    const bool is_long = &from == &long_;
    const auto first = from.begin();
    time_s_ = std::max(time_s_, first->first);
    std::function<void()> step = std::move(first->second.work);
    from.erase(first);
    if (is_long) ++long_running_;
    lock.unlock();
    step();
    step = nullptr;  // it may hold much
    lock.lock();
    if (is_long) --long_running_;
  }
  --working_;
  less_.notify_all();
}

}  // namespace lockstep::serve
