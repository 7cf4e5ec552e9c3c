#include "lockstep/liveness/watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::liveness {
namespace {

constexpr std::chrono::milliseconds interval{100};

struct Started {
  std::string position;  ///< "step 12, bucket 3"
  std::unique_ptr<device::Event> end;
};

}  // namespace

struct Watch::Impl {
  explicit Impl(WatchSpec given) : spec(std::move(given)) {
    thread = std::thread([this] { run(); });
  }

  void run() {
    if (spec.enter) spec.enter();
    std::string why;
    while (why.empty()) {
      if (sleep([this] { return ending; }, interval)) return;
      why = look();
    }
    fail(why);
  }

  /// Sleeps until `wanted` holds (true) or the time is over (false).
  template <class Wanted>
  bool sleep(Wanted wanted, std::chrono::duration<double> time) {
    std::unique_lock lock(mutex);
    return woken.wait_for(lock, time, wanted);
  }

  /// The fault, or nothing.
  std::string look() {
    const double now = now_s();
    const double passed_s = std::min(now - std::exchange(last_look_s, now), 1.0);
    try {
      const bool moved = drop_ended();
      const std::string error = spec.library_error();
      const std::string where = position();
      waited_s = moved || where.empty() ? 0 : waited_s + passed_s;
      if (!error.empty())
        return fmt::format("{}: {}; {}", where, error, spec.find_missing(waited_s));
      if (waited_s <= spec.deadline_s) return "";
      if (spec.come_nearer && spec.come_nearer(waited_s)) {
        waited_s = 0;
        return "";
      }
      return fmt::format("{}: no reduction has ended for {:.3g} s; {}", where, spec.deadline_s,
                         spec.find_missing(waited_s));
    } catch (const std::exception& failure) {  // an error of the device
      return fmt::format("{}: {}", position(), failure.what());
    }
  }

  bool drop_ended() {
    const std::scoped_lock lock(mutex);
    bool moved = false;
    for (; !in_flight.empty() && in_flight.front().end->done(); moved = true) in_flight.pop_front();
    return moved;
  }

  /// The oldest collective in flight; empty when there is none.
  std::string position() {
    const std::scoped_lock lock(mutex);
    return in_flight.empty() ? "" : in_flight.front().position;
  }

  void fail(const std::string& why) {
    reason = why.starts_with(": ") ? why.substr(2) : why;
    failed = true;
    try {
      std::thread(spec.abort).detach();
    } catch (const std::system_error& error) {  // called here it could keep this thread for ever
      log::warn(fmt::format("no thread to end what is in flight: {}", error.what()));
    }
    if (!sleep([this] { return ending || noticed; }, std::chrono::duration<double>(spec.grace_s)))
      spec.give_up(reason);
  }

  WatchSpec spec;
  std::mutex mutex;
  std::condition_variable woken;
  bool ending = false, noticed = false;  // under the mutex, like the next two
  std::deque<Started> in_flight;
  std::uint64_t step = 0;
  double last_look_s = now_s(), waited_s = 0;  // used only by the watch's thread
  std::string reason;                          // written once, before `failed`
  std::atomic<bool> failed{false};
  std::thread thread;  // last: it uses all the others
};

Watch::Watch(WatchSpec spec) : impl_(std::make_unique<Impl>(std::move(spec))) {}

Watch::~Watch() {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->woken.notify_all();
  impl_->thread.join();
}

void Watch::begin_step(std::uint64_t step) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->step = step;
}

void Watch::started(std::string_view name, std::unique_ptr<device::Event> end) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->in_flight.push_back({fmt::format("step {}, {}", impl_->step, name), std::move(end)});
}

void Watch::rethrow() {
  if (!impl_->failed.load()) [[likely]]
    return;
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->noticed = true;
  }
  impl_->woken.notify_all();
  throw Error(impl_->reason);
}

bool Watch::failed() const { return impl_->failed.load(); }

}  // namespace lockstep::liveness
