#include "lockstep/train/ending/stop_signal.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>

#include <unistd.h>

namespace lockstep::train {
namespace {

constexpr std::int64_t at_the_same_moment_ms = 500;
// The terminal has written ^C on the line.
constexpr std::string_view what_follows =
    "\nstopping after this step, with a checkpoint; Ctrl-C again ends at once\n";

std::atomic<bool> g_stop{false}, g_speaks{false};
std::atomic<std::int64_t> g_interrupted_ms{0}, g_hung_up_ms{0};  // when first; 0: never
static_assert(std::atomic<bool>::is_always_lock_free &&
                  std::atomic<std::int64_t>::is_always_lock_free,
              "a signal handler may only touch such flags");

std::int64_t monotonic_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;
}

void request_stop(int) { g_stop = true; }

void request_stop_or_end(int signal) {
  std::atomic<std::int64_t>& first_ms = signal == SIGINT ? g_interrupted_ms : g_hung_up_ms;
  const std::int64_t now_ms = monotonic_ms();
  std::int64_t before_ms = 0;
  g_stop = true;
  if (first_ms.compare_exchange_strong(before_ms, now_ms)) {
    if (signal != SIGINT || !g_speaks) return;
    if (::write(STDERR_FILENO, what_follows.data(), what_follows.size()) < 0) return;
  } else if (now_ms - before_ms >= at_the_same_moment_ms) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // arrives when this handler returns
  }
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // so that no library's read or write fails because of it
  sigaction(signal, &action, nullptr);
}

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void catch_stop_signals(bool speaks) {
  g_speaks = speaks;
  for (const int signal : {SIGTERM, SIGUSR1}) handle(signal, request_stop);
  for (const int signal : {SIGINT, SIGHUP})
    if (!is_ignored(signal)) handle(signal, request_stop_or_end);
}

bool stop_requested() { return g_stop; }

}  // namespace lockstep::train
