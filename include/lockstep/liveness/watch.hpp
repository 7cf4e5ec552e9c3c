#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/device/device.hpp"

namespace lockstep::liveness {

struct WatchSpec {
  double deadline_s = 120;                     ///< for the next collective to end
  double grace_s = 10;                         ///< for the main thread to notice, before give_up()
  std::function<void()> enter;                 ///< called first on the watch's own thread
  std::function<std::string()> library_error;  ///< the library's error; empty when all is well
  /// Names the ranks that keep this one waiting, after it has waited for `waited_s`. Called on the
  /// watch's thread: it must not touch what belongs to the main thread.
  std::function<std::string(double waited_s)> find_missing;
  /// Optional: whether, after such a wait, the others only have steps to make: it begins again.
  std::function<bool(double waited_s)> come_nearer = {};
  std::function<void()> abort;  ///< ends what is in flight; on a separate thread: it may hang
  std::function<void(const std::string& why)> give_up;  ///< ends the world
};

/// Watches collectives that the host starts and never waits for, on a separate thread. When none
/// has ended for the deadline, or one failed, or the library reports an error, it aborts what is in
/// flight. This wakes threads that wait for the device, and rethrow() throws on the main thread. If
/// that does not happen within the grace period, the watch gives up; so it does where the system
/// gives no thread for abort(). Time in which the process was suspended does not count.
/// **Thread safety:** only the main thread calls it. The functions of WatchSpec run on the watch's
/// thread, abort() on another one.
class Watch {
 public:
  explicit Watch(WatchSpec spec);
  ~Watch();  ///< ends the thread; collectives in flight are forgotten
  void begin_step(std::uint64_t step);
  /// A collective was started; `end` follows it in its stream.
  void started(std::string_view name, std::unique_ptr<device::Event> end);
  /// Throws Error with the step, the collective and the reason once something went wrong. Cheap.
  void rethrow();
  bool failed() const;  ///< something went wrong, and abort() has been called

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::liveness
