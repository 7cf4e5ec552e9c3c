#include "ports/http/header_deadline.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "lockstep/base/clock.hpp"

namespace lockstep::http {

HeaderDeadline::HeaderDeadline(double longest_s)
    : longest_s_(longest_s), thread_([this] { work(); }) {}

HeaderDeadline::~HeaderDeadline() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  stops_.notify_all();
  thread_.join();
}

void HeaderDeadline::wait_for(MHD_Connection* connection) {
  const std::scoped_lock lock(mutex_);
  since_s_[connection] = now_s();
}

void HeaderDeadline::forget(MHD_Connection* connection) {
  const std::scoped_lock lock(mutex_);
  since_s_.erase(connection);
}

void HeaderDeadline::work() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    stops_.wait_for(lock, std::chrono::duration<double>(std::min(1.0, longest_s_ / 10)));
    end_late();
  }
}

/// The library sees an end of the stream then, and forgets the connection. Its descriptor is open:
/// the library calls forget(), which waits for the lock, before it closes that.
void HeaderDeadline::end_late() {
  const double now = now_s();
  for (auto& [connection, since_s] : since_s_) {
    if (now - since_s < longest_s_) continue;
    const MHD_ConnectionInfo* info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != nullptr) ::shutdown(info->connect_fd, SHUT_RDWR);
    since_s = now;
  }
}

}  // namespace lockstep::http
