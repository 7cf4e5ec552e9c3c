#include "ports/tcp/meeting/card_keeper.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::tcp {
namespace {

constexpr std::chrono::seconds look_every{1}, patience{2};

}  // namespace

struct CardKeeper::State {
  const std::filesystem::path file;
  const cluster::MeetingCard card;
  std::mutex mutex{};
  std::condition_variable changed{};
  bool off = false, over = false;  // under the mutex, like the next
  std::exception_ptr fault{};      // of the first time

  void run() {
    keep();
    const std::scoped_lock lock(mutex);
    over = true;
    changed.notify_all();
  }

  void keep() {
    Descriptor held;  // the card's file
    try {
      held = cluster::leave_card(file, card);
    } catch (const Error&) {
      const std::scoped_lock lock(mutex);
      fault = std::current_exception();
      return;
    } catch (const std::exception& error) {
      const std::scoped_lock lock(mutex);
      fault = std::make_exception_ptr(Error(error.what()));
      return;
    }
    // Where locks do not work, another start may have taken it for a dead one's.
    while (!wait_until_off()) {
      if (access(file.c_str(), F_OK) == 0) continue;
      try {
        held = cluster::leave_card(file, card);
      } catch (const std::exception&) {
        // Ranks that have read it still come.
      }
    }
    unlink(file.c_str());
  }

  /// False after a while.
  bool wait_until_off() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, look_every, [this] { return off; });
  }
};

CardKeeper::CardKeeper(const std::filesystem::path& file, const cluster::MeetingCard& card)
    : state_(new State{.file = file, .card = card}) {
  try {
    thread_ = std::thread([state = state_] { state->run(); });
  } catch (const std::system_error& error) {
    throw Error(fmt::format("no thread to keep {}: {}", file.string(), error.what()));
  }
}

CardKeeper::~CardKeeper() {
  std::unique_lock lock(state_->mutex);
  state_->off = true;
  state_->changed.notify_all();
  const bool over = state_->changed.wait_for(lock, patience, [this] { return state_->over; });
  lock.unlock();
  if (over)
    thread_.join();
  else
    thread_.detach();  // it shares the state
}

void CardKeeper::check_left() const {
  const std::scoped_lock lock(state_->mutex);
  if (state_->fault) std::rethrow_exception(state_->fault);
}

}  // namespace lockstep::tcp
