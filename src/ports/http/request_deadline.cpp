#include "ports/http/request_deadline.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::http {

void Patience::came(std::size_t bytes, double now_s) {
  const double bought_s = static_cast<double>(bytes) / limits_.body_bytes_per_s;
  until_s_ = std::min({until_s_ + bought_s, now_s + limits_.silence_s, latest_s_});
}

void Patience::leaves(std::size_t bytes, double now_s) {
  until_s_ = now_s + limits_.silence_s + static_cast<double>(bytes) / limits_.body_bytes_per_s;
}

RequestDeadline::~RequestDeadline() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  changes_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RequestDeadline::await(MHD_Connection* connection) {
  await(connection, Patience(now_s(), limits_, true));
}

void RequestDeadline::await_body(MHD_Connection* connection) {
  await(connection, Patience(now_s(), limits_));
}

void RequestDeadline::leaves(MHD_Connection* connection, std::size_t bytes) {
  Patience patience(now_s(), limits_);
  patience.leaves(bytes, now_s());
  await(connection, patience);
}

void RequestDeadline::await(MHD_Connection* connection, const Patience& patience) {
  const std::scoped_lock lock(mutex_);
  awaited_.insert_or_assign(connection, patience);
  if (!thread_.joinable()) start();
  if (sleeps_) changes_.notify_all();
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
    found->second.came(bytes, now_s());
}

void RequestDeadline::forget(MHD_Connection* connection) {
  const std::scoped_lock lock(mutex_);
  awaited_.erase(connection);
}

/// A new deadline is never sooner than the shortest sleep, so it need not wake for it.
void RequestDeadline::work() {
  constexpr double look_s = 0.1;
  const double shortest_s =
      std::min({limits_.silence_s, limits_.body_s, client_waits_ ? look_s : limits_.silence_s});
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (awaited_.empty()) {
      sleeps_ = true;
      changes_.wait(lock);
      sleeps_ = false;
      continue;
    }
    const auto first = std::ranges::min_element(
        awaited_, {}, [](const auto& one) { return one.second.until_s(); });
    const double left_s = std::min(first->second.until_s() - now_s(), shortest_s);
    if (left_s > 0) changes_.wait_for(lock, std::chrono::duration<double>(left_s));
    end_late();
    if (client_waits_ && client_waits_()) make_place();
  }
}

void RequestDeadline::end_late() {
  const double now = now_s();
  for (auto& [connection, patience] : awaited_)
    if (now >= patience.until_s()) end(connection, patience);
}

/// A few at a time: those that wait are not counted.
void RequestDeadline::make_place() {
  constexpr double unused_s = 1;
  const double latest_s = now_s() - unused_s;
  std::vector<std::pair<double, MHD_Connection*>> unused;
  for (const auto& [connection, patience] : awaited_)
    if (patience.is_unused() && patience.since_s() < latest_s)
      unused.emplace_back(patience.since_s(), connection);
  std::ranges::sort(unused);
  unused.resize(std::min(unused.size(), awaited_.size() / 8 + 1));
  for (const auto& [since_s, connection] : unused) end(connection, awaited_.at(connection));
}

/// The library sees an end of the stream then, and forgets the connection. Its descriptor is open:
/// the library calls forget(), which waits for the lock, before it closes that.
void RequestDeadline::end(MHD_Connection* connection, Patience& patience) {
  const MHD_ConnectionInfo* info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  if (info != nullptr) ::shutdown(info->connect_fd, SHUT_RDWR);
  patience = Patience(now_s(), limits_);
}

}  // namespace lockstep::http
