#pragma once

#include <microhttpd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace lockstep::http {

/// Ends connections on which no whole header of a request has come for a time. The library's own
/// limit begins again with each byte, so a client that sends one now and then would stay for ever.
/// **Thread safety:** all methods.
class HeaderDeadline {
 public:
  explicit HeaderDeadline(double longest_s);
  ~HeaderDeadline();
  HeaderDeadline(const HeaderDeadline&) = delete;
  HeaderDeadline& operator=(const HeaderDeadline&) = delete;
  void wait_for(MHD_Connection* connection);  ///< it is new, or its last request has ended
  void forget(MHD_Connection* connection);    ///< a header has come, or the connection ends

 private:
  void work();
  void end_late();

  const double longest_s_;
  std::mutex mutex_;
  std::condition_variable stops_;
  bool stopped_ = false;
  std::map<MHD_Connection*, double> since_s_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::http
