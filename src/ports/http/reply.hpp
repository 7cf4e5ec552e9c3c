#pragma once

#include <microhttpd.h>
#include <poll.h>

#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/base/http.hpp"

namespace lockstep::http {

/// Where the response to one request is put, by whichever thread has it.
struct Reply {
  std::mutex mutex;
  std::optional<HttpResponse> response;
  MHD_Connection* parked = nullptr;  ///< waits for the response

  void take(HttpResponse given) {
    const std::scoped_lock lock(mutex);
    if (response) return;
    response = std::move(given);
    if (parked != nullptr) MHD_resume_connection(std::exchange(parked, nullptr));
  }
  bool is_there() {
    const std::scoped_lock lock(mutex);
    return response.has_value();
  }
  /// Waits, and its client has closed the connection. While it is parked that is not closed here.
  bool is_alone() {
    const std::scoped_lock lock(mutex);
    if (parked == nullptr) return false;
    const auto* info = MHD_get_connection_info(parked, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == nullptr) return false;
    pollfd asked = {.fd = info->connect_fd, .events = POLLRDHUP, .revents = 0};
    return ::poll(&asked, 1, 0) == 1 && (asked.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }
};

}  // namespace lockstep::http
