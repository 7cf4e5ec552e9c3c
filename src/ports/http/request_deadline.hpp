#pragma once

#include <microhttpd.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep::http {

/// How long clients may take.
struct Patiences {
  double silence_s = 10;          ///< for a header, or without a useful byte
  double body_bytes_per_s = 1e4;  ///< the slowest body
  double body_s = 600;            ///< for a whole body
};

/// How long a client may still send: its bytes buy time, but never more than `silence_s` from now,
/// and none beyond `body_s` from the beginning. So one that sends faster than the rate has until
/// then; one that stops or drips is late after at most `silence_s`.
class Patience {
 public:
  /// `is_unused`: no part of a request has come.
  Patience(double now_s, const Patiences& limits, bool is_unused = false)
      : limits_(limits),
        is_unused_(is_unused),
        since_s_(now_s),
        until_s_(now_s + std::min(limits.silence_s, limits.body_s)),
        latest_s_(now_s + limits.body_s) {}
  void came(std::size_t bytes, double now_s);
  /// From now on it reads a response: by then it has to have all.
  void leaves(std::size_t bytes, double now_s);
  double until_s() const { return until_s_; }
  double since_s() const { return since_s_; }
  bool is_unused() const { return is_unused_; }

 private:
  Patiences limits_;
  bool is_unused_;
  double since_s_, until_s_, latest_s_;  // times of now_s()
};

/// Ends connections over which no request comes in time: a whole header within `silence_s`, then a
/// body that is not slower than a rate for longer than that, nor takes longer than `body_s`; then
/// its response has to be read, `silence_s` and what its bytes take at that rate. The library's own
/// limit begins again with each byte, so a client that sends one now and then would stay for ever.
/// While a client waits for a place, connections end that no header has come over for a second, the
/// oldest first.
/// Its thread starts with the first connection, and sleeps while nothing is awaited.
/// **Thread safety:** all methods.
class RequestDeadline {
 public:
  /// `client_waits`: whether one waits for a place among the connections; asked on the own thread,
  /// often.
  explicit RequestDeadline(const Patiences& limits, std::function<bool()> client_waits = {})
      : limits_(limits), client_waits_(std::move(client_waits)) {}
  ~RequestDeadline();
  RequestDeadline(const RequestDeadline&) = delete;
  RequestDeadline& operator=(const RequestDeadline&) = delete;
  /// A header begins to come: the connection is new, or its last request has ended.
  void await(MHD_Connection* connection);
  void await_body(MHD_Connection* connection);                 ///< the header has come
  void came(MHD_Connection* connection, std::size_t bytes);    ///< of the body
  void leaves(MHD_Connection* connection, std::size_t bytes);  ///< a response of that many begins
  void forget(MHD_Connection* connection);  ///< a request has come, or the connection ends

 private:
  void await(MHD_Connection* connection, const Patience& patience);
  void start();  // holds the lock
  void work();
  void end_late();
  void make_place();
  void end(MHD_Connection* connection, Patience& patience);

  const Patiences limits_;
  const std::function<bool()> client_waits_;
  std::mutex mutex_;
  std::condition_variable changes_;
  bool stopped_ = false, sleeps_ = false;  ///< without a time to wake
  std::map<MHD_Connection*, Patience> awaited_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::http
