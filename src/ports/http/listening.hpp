#pragma once

#include <microhttpd.h>
#include <poll.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/http.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::http {

/// A Unix socket that listens at a path, for its owner alone; destroyed, it removes the path. One
/// that a server which is gone has left there is replaced. Throws InputError naming the path when
/// another server listens there, or nothing can.
class LocalSocket {
 public:
  explicit LocalSocket(const std::string& path);
  ~LocalSocket();
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;
  /// Gives the descriptor away.
  Descriptor take() { return std::move(listening_); }

 private:
  std::string path_;
  Descriptor listening_;
};

/// Adds what makes a daemon that is started with MHD_USE_TLS speak HTTPS. The library reads `tls`
/// only while it starts.
void add_tls(const HttpTls& tls, std::vector<MHD_OptionItem>& options);

/// The headers of one request. What a proxy in front might read in another way than the library is
/// wrong: then the next request may begin elsewhere than the proxy thinks.
class StrictHeader {
 public:
  /// `path`: decoded; `version`: as the library's handler gets them.
  StrictHeader(MHD_Connection* connection, const char* path, const char* version);
  /// One sentence; empty where nothing is wrong.
  const std::string& fault() const { return fault_; }
  std::map<std::string, std::string> take() { return std::move(headers_); }

 private:
  static MHD_Result take_header(void* self, MHD_ValueKind, const char* name, const char* value);
  void add(const std::string& name, const char* value);
  void judge_lengths();

  std::map<std::string, std::string> headers_;  ///< names in lower case
  std::string fault_;
};

/// For the library: decodes a path in place. One with a NUL stays as it is, and has a fault then.
size_t decode_path(void*, MHD_Connection*, char* path);

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
