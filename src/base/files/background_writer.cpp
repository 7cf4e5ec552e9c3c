#include "lockstep/base/files/background_writer.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep {
namespace {

constexpr std::chrono::seconds silent_wait{1};
/// Its share of a core that others want to compute on is about a tenth of theirs: it delays them
/// little, and is not starved.
constexpr int niceness = 10;

}  // namespace

struct BackgroundWriter::Impl {
  Impl(std::function<void()> enter, double patience)
      : patience_s(patience), thread([this, enter = std::move(enter)] {
          ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), niceness);
          if (begin(enter)) run();
        }) {}

  /// False if it throws, which is then the error of the first order.
  bool begin(const std::function<void()>& enter) {
    try {
      if (enter) enter();
      return true;
    } catch (...) {
      const std::scoped_lock lock(mutex);
      error = std::current_exception();
      changed.notify_all();
      return false;
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ending || !orders.empty(); });
      if (orders.empty() || error) return;
      began_s = now_s();
      current = std::move(orders.front());
      orders.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      std::size_t bytes = 0;
      try {
        bytes = write(*current);
      } catch (...) {
        failure = std::current_exception();
      }
      current->begun = nullptr;
      current->bytes = nullptr;  // their memory is free before this order counts as finished
      lock.lock();
      if (failure) {
        error = failure;
        orders.clear();
      } else {
        written.push_back({current->number, bytes, now_s() - *began_s});
      }
      if (std::exchange(complained, false) && !failure)
        log::warn(
            fmt::format("{} is on the disk, after {:.0f} s", current->name, now_s() - *began_s));
      current.reset();
      began_s.reset();
      changed.notify_all();
    }
  }

  /// What can no longer be written is no wrong input: when the order came, it could be.
  static std::size_t write(const Order& order) {
    try {
      return carry_out(order);
    } catch (const InputError& error) {
      throw Error(error.what());
    }
  }

  static std::size_t carry_out(const Order& order) {
    if (order.before) order.before();
    const std::string_view bytes = order.bytes();
    if (order.begun) {
      order.begun->commit(bytes);
      for (std::size_t i = 1; i < order.paths.size(); ++i)
        give_second_name(order.paths.front(), order.paths[i]);
    } else {
      for (const auto& path : order.paths) write_text_atomically(path, bytes);
    }
    if (order.durable) order.durable();
    return bytes.size() + (order.begun ? order.begun->added() : 0);
  }

  std::size_t unfinished() const { return orders.size() + (current ? 1 : 0); }

  /// REQUIRES: the lock.
  void complain() {
    if (!began_s || complained || now_s() - *began_s < patience_s) return;
    complained = true;
    log::warn(fmt::format("{} has been written for {:.0f} s: does the file system of {} answer?",
                          current->name, now_s() - *began_s,
                          current->paths.front().parent_path().string()));
  }

  void rethrow() {
    if (error && !std::exchange(told, true)) std::rethrow_exception(error);
  }

  const double patience_s;
  mutable std::mutex mutex;  // guards all that follows
  std::condition_variable changed;
  std::deque<Order> orders;
  std::optional<Order> current;  ///< whose turn it is; only the writer's thread changes it
  std::optional<double> began_s;
  std::vector<Written> written;
  std::exception_ptr error;
  bool told = false;  ///< the error was thrown
  bool complained = false, ending = false;
  std::thread thread;  // last: it uses all the others
};

BackgroundWriter::BackgroundWriter(std::function<void()> enter, double patience_s)
    : impl_(std::make_unique<Impl>(std::move(enter), patience_s)) {}

BackgroundWriter::~BackgroundWriter() {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
  if (std::uncaught_exceptions() > 0) return;  // the run ends for another reason, which is told
  try {
    impl_->rethrow();
  } catch (const std::exception& error) {
    log::error(error.what());
  }
}

void BackgroundWriter::add(Order order) {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->orders.push_back(std::move(order));
  }
  impl_->changed.notify_all();
}

std::size_t BackgroundWriter::drop_waiting() {
  const std::scoped_lock lock(impl_->mutex);
  const std::size_t kept = impl_->current || impl_->orders.empty() ? 0 : 1;
  const std::size_t dropped = impl_->orders.size() - kept;
  impl_->orders.resize(kept);
  return dropped;
}

std::size_t BackgroundWriter::unfinished() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->unfinished();
}

double BackgroundWriter::seconds() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->began_s ? now_s() - *impl_->began_s : 0;
}

std::vector<BackgroundWriter::Written> BackgroundWriter::poll() {
  const std::scoped_lock lock(impl_->mutex);
  impl_->rethrow();
  impl_->complain();
  return std::exchange(impl_->written, {});
}

void BackgroundWriter::wait(std::size_t most) {
  std::unique_lock lock(impl_->mutex);
  const auto done = [&] { return impl_->error || impl_->unfinished() <= most; };
  if (!impl_->changed.wait_for(lock, silent_wait, done) && impl_->current)
    log::info(fmt::format("waiting until {} is on the disk", impl_->current->name));
  while (!impl_->changed.wait_for(lock, silent_wait, done)) impl_->complain();
  impl_->rethrow();
}

}  // namespace lockstep
