#include "ports/http/request_deadline.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include <fmt/core.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::http {

void Patience::came(std::size_t bytes, double bytes_per_s, double now_s) {
  until_s_ = std::min(until_s_ + static_cast<double>(bytes) / bytes_per_s, now_s + longest_s_);
}

RequestDeadline::RequestDeadline(double longest_s, double body_bytes_per_s)
    : longest_s_(longest_s), body_bytes_per_s_(body_bytes_per_s) {}

RequestDeadline::~RequestDeadline() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  changes_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RequestDeadline::await(MHD_Connection* connection) {
  const std::scoped_lock lock(mutex_);
  awaited_.insert_or_assign(connection, Patience(now_s(), longest_s_));
  if (!thread_.joinable()) start();
  if (awaited_.size() == 1) changes_.notify_all();
}

void RequestDeadline::start() {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {  // the next connection tries again
    log::warn(fmt::format("HTTP clients have no deadline yet: no thread: {}", error.what()));
  }
}

void RequestDeadline::came(MHD_Connection* connection, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = awaited_.find(connection); found != awaited_.end())
    found->second.came(bytes, body_bytes_per_s_, now_s());
}

void RequestDeadline::forget(MHD_Connection* connection) {
  const std::scoped_lock lock(mutex_);
  awaited_.erase(connection);
}

/// A new deadline is never before those that are there, so it need not wake for it.
void RequestDeadline::work() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (awaited_.empty()) {
      changes_.wait(lock);
      continue;
    }
    const auto first = std::ranges::min_element(
        awaited_, {}, [](const auto& one) { return one.second.until_s(); });
    const double left_s = first->second.until_s() - now_s();
    if (left_s > 0) changes_.wait_for(lock, std::chrono::duration<double>(left_s));
    end_late();
  }
}

/// The library sees an end of the stream then, and forgets the connection. Its descriptor is open:
/// the library calls forget(), which waits for the lock, before it closes that.
void RequestDeadline::end_late() {
  const double now = now_s();
  for (auto& [connection, patience] : awaited_) {
    if (now < patience.until_s()) continue;
    const MHD_ConnectionInfo* info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != nullptr) ::shutdown(info->connect_fd, SHUT_RDWR);
    patience = Patience(now, longest_s_);
  }
}

}  // namespace lockstep::http
