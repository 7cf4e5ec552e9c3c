#pragma once

#include <microhttpd.h>

#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <thread>

namespace lockstep::http {

/// How long a client may still send: its bytes buy time, but never more than `longest_s` from now.
/// One that sends faster than the rate is never late, however long that takes; one that stops or
/// drips is late after at most `longest_s`.
class Patience {
 public:
  Patience(double now_s, double longest_s) : longest_s_(longest_s), until_s_(now_s + longest_s) {}
  void came(std::size_t bytes, double bytes_per_s, double now_s);
  double until_s() const { return until_s_; }

 private:
  double longest_s_, until_s_;  // times of now_s()
};

/// Ends connections over which no request comes in time: a whole header within `longest_s`, then a
/// body that is not slower than a rate for longer than that. The library's own limit begins again
/// with each byte, so a client that sends one now and then would stay for ever. Its thread starts
/// with the first connection, and sleeps while nothing is awaited.
/// **Thread safety:** all methods.
class RequestDeadline {
 public:
  RequestDeadline(double longest_s, double body_bytes_per_s);
  ~RequestDeadline();
  RequestDeadline(const RequestDeadline&) = delete;
  RequestDeadline& operator=(const RequestDeadline&) = delete;
  /// A header or a body begins to come: the connection is new, its last request has ended, or its
  /// header has come.
  void await(MHD_Connection* connection);
  void came(MHD_Connection* connection, std::size_t bytes);  ///< of the body
  void forget(MHD_Connection* connection);  ///< a request has come, or the connection ends

 private:
  void start();  // holds the lock
  void work();
  void end_late();

  const double longest_s_, body_bytes_per_s_;
  std::mutex mutex_;
  std::condition_variable changes_;
  bool stopped_ = false;
  std::map<MHD_Connection*, Patience> awaited_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::http
