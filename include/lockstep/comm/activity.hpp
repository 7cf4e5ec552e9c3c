#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::comm {

/// What a rank's main thread is doing.
enum class Phase : std::uint8_t {
  start_up,
  data,
  forward,
  backward,
  reduction,
  update,
  end_of_step,
  audit,
  checkpoint,
  evaluation,
  ending
};
const char* to_string(Phase phase);

/// How far a rank is, as its heartbeat reports it.
struct Activity {
  std::uint64_t step = 0;  ///< the current one, from 1; 0 before the first
  Phase phase = Phase::start_up;
  std::uint32_t bucket = 0;     ///< of a reduction
  std::uint64_t bytes = 0;      ///< of that bucket
  bool waiting = false;         ///< for other ranks
  std::uint64_t movements = 0;  ///< signs of progress since the start
  bool on_files = false;        ///< the kernel holds the main thread: it waits for a file system

  static void fields(auto& self, auto&& visit) {
    visit(self.step, self.phase, self.bucket, self.bytes, self.waiting, self.movements,
          self.on_files);
  }
};

/// "step 12, reduction of bucket 3 (1.0 MB)"
std::string describe(const Activity& activity);

/// Sees what a rank's main thread does, at each change and on that thread.
class ActivityObserver {
 public:
  virtual ~ActivityObserver() = default;
  /// What the rank does from now on. `movements` and `on_files` are not set.
  virtual void changed(const Activity& now) = 0;
};

/// What this rank is doing, which its heartbeat reports to the other ranks. A process has one, made
/// at its start; copies share it. Each change costs a few relaxed stores.
/// **Thread safety:** only the main thread writes, and adds observers; any thread may call now().
class ActivityTracker {
 public:
  ActivityTracker();

  void begin_step(std::uint64_t step) const;
  void enter(Phase phase) const;
  void moved() const;  ///< notes progress within a phase
  Activity now() const;
  /// The observer sees each change until it is removed, which must be before its end.
  void add(ActivityObserver& observer) const;
  void remove(ActivityObserver& observer) const;

  /// For a device that runs later than the host: while the host is in a step, now() returns the
  /// phase that the device has written to `reached`, as encoded by code(). A device that is still
  /// in forward or backward waits for no other rank. `reached` must live until another place, or
  /// nullptr, is followed.
  void follow(const volatile std::uint64_t* reached) const;
  std::uint64_t code(Phase phase) const;  ///< with the current step; grows with both

 private:
  friend class Waiting;
  struct Marks;
  void tell() const;
  std::shared_ptr<Marks> marks_;
};

/// Marks the rank as waiting for others during its lifetime. A wait that ends by an exception stays
/// marked until the next one ends: it is what the rank did when it failed, and the others are told.
class Waiting {
 public:
  explicit Waiting(const ActivityTracker& activity);
  Waiting(const ActivityTracker& activity, std::size_t bucket, std::size_t bytes);  ///< a reduction
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void begin();

  ActivityTracker activity_;
  Phase before_;
  int exceptions_;  ///< under way when it began
};

/// Shows the phases of a rank's main thread to a profiler of its device, each with the number of
/// its step, until it is destroyed: on a GPU as NVTX ranges in the domain "lockstep". Without a
/// profiler that costs next to nothing. Null where there is no such profiler.
std::unique_ptr<ActivityObserver> make_phase_ranges(const ActivityTracker& activity);

}  // namespace lockstep::comm
