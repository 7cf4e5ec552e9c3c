#include "lockstep/comm/activity.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <exception>
#include <vector>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"

namespace lockstep::comm {

const char* to_string(Phase phase) {
  constexpr std::array names{"start-up",   "data",       "forward",     "backward",
                             "reduction",  "update",     "end of step", "weight audit",
                             "checkpoint", "evaluation", "ending"};
  static_assert(names.size() == static_cast<std::size_t>(Phase::ending) + 1);
  const auto index = static_cast<std::size_t>(phase);
  return index < names.size() ? names[index] : "unknown phase";
}

std::string describe(const Activity& activity) {
  if (activity.step == 0) return to_string(activity.phase);
  if (activity.phase != Phase::reduction)
    return fmt::format("step {}, {}", activity.step, to_string(activity.phase));
  return fmt::format("step {}, reduction of bucket {} ({})", activity.step, activity.bucket,
                     human_bytes(static_cast<double>(activity.bytes)));
}

namespace {

constexpr auto relaxed = std::memory_order_relaxed;

constexpr unsigned phase_bits = 8;

bool in_step(Phase phase) {
  return phase == Phase::forward || phase == Phase::backward || phase == Phase::reduction ||
         phase == Phase::update;
}

/// In an uninterruptible wait (state D), as for a disk or a server of files that does not answer.
bool main_thread_is_held() {
  const std::string text = first_line(fmt::format("/proc/self/task/{}/stat", ::getpid()));
  const std::size_t end = text.rfind(')');  // of the program's name
  return end != text.npos && text.substr(end).starts_with(") D");
}

}  // namespace

// Separate words: a reader may see a new phase with the previous bucket, which is close enough for
// a moment.
struct ActivityTracker::Marks {
  std::atomic<std::uint64_t> step{0}, bytes{0}, movements{0};
  std::atomic<std::uint32_t> bucket{0};
  std::atomic<Phase> phase{Phase::start_up};
  std::atomic<bool> waiting{false};
  std::atomic<const volatile std::uint64_t*> reached{nullptr};
  std::vector<ActivityObserver*> observers;  ///< of the main thread alone
};

ActivityTracker::ActivityTracker() : marks_(std::make_shared<Marks>()) {}

void ActivityTracker::moved() const {
  marks_->movements.store(marks_->movements.load(relaxed) + 1, relaxed);
}

void ActivityTracker::begin_step(std::uint64_t step) const {
  marks_->step.store(step, relaxed);
  enter(Phase::data);
}

void ActivityTracker::enter(Phase phase) const {
  marks_->phase.store(phase, relaxed);
  moved();
  tell();
}

void ActivityTracker::add(ActivityObserver& observer) const {
  marks_->observers.push_back(&observer);
}

void ActivityTracker::remove(ActivityObserver& observer) const {
  std::erase(marks_->observers, &observer);
}

void ActivityTracker::tell() const {
  for (ActivityObserver* observer : marks_->observers)
    observer->changed({.step = marks_->step.load(relaxed),
                       .phase = marks_->phase.load(relaxed),
                       .bucket = marks_->bucket.load(relaxed),
                       .bytes = marks_->bytes.load(relaxed),
                       .waiting = marks_->waiting.load(relaxed)});
}

Activity ActivityTracker::now() const {
  Activity activity{marks_->step.load(relaxed),    marks_->phase.load(relaxed),
                    marks_->bucket.load(relaxed),  marks_->bytes.load(relaxed),
                    marks_->waiting.load(relaxed), marks_->movements.load(relaxed),
                    main_thread_is_held()};
  const volatile std::uint64_t* place = marks_->reached.load();
  if (!place) return activity;
  const std::uint64_t reached = *place;
  activity.movements += reached;
  const auto phase = static_cast<Phase>(reached & ((1u << phase_bits) - 1));
  if (reached >> phase_bits != activity.step || !in_step(activity.phase)) return activity;
  if (phase != Phase::forward && phase != Phase::backward) return activity;
  activity.phase = phase;
  activity.waiting = false;
  return activity;
}

void ActivityTracker::follow(const volatile std::uint64_t* reached) const {
  marks_->reached.store(reached);
}

std::uint64_t ActivityTracker::code(Phase phase) const {
  return marks_->step.load(relaxed) << phase_bits | static_cast<std::uint64_t>(phase);
}

Waiting::Waiting(const ActivityTracker& activity)
    : activity_(activity),
      before_(activity_.marks_->phase.load(relaxed)),
      exceptions_(std::uncaught_exceptions()) {
  begin();
}

Waiting::Waiting(const ActivityTracker& activity, std::size_t bucket, std::size_t bytes)
    : activity_(activity),
      before_(activity_.marks_->phase.load(relaxed)),
      exceptions_(std::uncaught_exceptions()) {
  activity_.marks_->bucket.store(static_cast<std::uint32_t>(bucket), relaxed);
  activity_.marks_->bytes.store(bytes, relaxed);
  activity_.marks_->phase.store(Phase::reduction, relaxed);
  begin();
}

void Waiting::begin() {
  activity_.marks_->waiting.store(true, relaxed);
  activity_.moved();
  activity_.tell();
}

Waiting::~Waiting() {
  if (std::uncaught_exceptions() > exceptions_) return;
  activity_.marks_->waiting.store(false, relaxed);
  activity_.enter(before_);
}

}  // namespace lockstep::comm
