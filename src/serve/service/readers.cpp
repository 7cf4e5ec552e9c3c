#include "serve/service/readers.hpp"

#include <utility>

namespace lockstep::serve {

Readers::Readers(std::size_t threads, const std::function<void()>& enter) {
  for (std::size_t i = 0; i < threads; ++i)
    threads_.emplace_back([this, enter] {
      if (enter) enter();
      work();
    });
}

void Readers::post(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (stopped_) return;
    tasks_.push_back(std::move(task));
  }
  something_.notify_one();
}

void Readers::stop() {
  std::deque<std::function<void()>> forgotten;
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    forgotten.swap(tasks_);
  }
  something_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

void Readers::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    something_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
    if (stopped_) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }
}

}  // namespace lockstep::serve
