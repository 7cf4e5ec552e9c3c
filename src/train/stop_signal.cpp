#include "lockstep/train/stop_signal.hpp"

#include <atomic>
#include <csignal>

namespace lockstep::train {
namespace {

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch such a flag");

void request_stop(int) { g_stop = true; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;  // so that no library's read or write fails because of it
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
}

bool stop_requested() { return g_stop; }

}  // namespace lockstep::train
