#include "lockstep/comm/activity.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <mutex>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"

namespace lockstep::comm {

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::start_up:
      return "start-up";
    case Phase::data:
      return "data";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::reduction:
      return "reduction";
    case Phase::update:
      return "update";
    case Phase::end_of_step:
      return "end of step";
    case Phase::audit:
      return "weight audit";
    case Phase::checkpoint:
      return "checkpoint";
    case Phase::evaluation:
      return "evaluation";
    case Phase::ending:
      return "ending";
  }
  return "unknown phase";
}

std::string describe(const Activity& activity) {
  if (activity.step == 0) return to_string(activity.phase);
  if (activity.phase != Phase::reduction)
    return fmt::format("step {}, {}", activity.step, to_string(activity.phase));
  return fmt::format("step {}, reduction of bucket {} ({})", activity.step, activity.bucket,
                     human_bytes(static_cast<double>(activity.bytes)));
}

namespace activity {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

// Separate words: a reader may see a new phase with the previous bucket, which is close enough for
// a moment.
struct Marks {
  std::atomic<std::uint64_t> step{0}, bytes{0}, movements{0};
  std::atomic<std::uint32_t> bucket{0};
  std::atomic<Phase> phase{Phase::start_up};
  std::atomic<bool> waiting{false};
};
Marks g_marks;
std::atomic<const volatile std::uint64_t*> g_reached{nullptr};

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

struct Place {
  std::mutex mutex;
  std::filesystem::path directory;
};

Place& place() {
  static Place the_place;
  return the_place;
}

}  // namespace

void moved() { g_marks.movements.store(g_marks.movements.load(relaxed) + 1, relaxed); }

void begin_step(std::uint64_t step) {
  g_marks.step.store(step, relaxed);
  enter(Phase::data);
}

void enter(Phase phase) {
  g_marks.phase.store(phase, relaxed);
  moved();
}

Activity now() {
  Activity activity{g_marks.step.load(relaxed),    g_marks.phase.load(relaxed),
                    g_marks.bucket.load(relaxed),  g_marks.bytes.load(relaxed),
                    g_marks.waiting.load(relaxed), g_marks.movements.load(relaxed),
                    main_thread_is_held()};
  const volatile std::uint64_t* place = g_reached.load();
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

void follow(const volatile std::uint64_t* reached) { g_reached.store(reached); }

std::uint64_t code(Phase phase) {
  return g_marks.step.load(relaxed) << phase_bits | static_cast<std::uint64_t>(phase);
}

Waiting::Waiting() : before_(g_marks.phase.load(relaxed)), exceptions_(std::uncaught_exceptions()) {
  g_marks.waiting.store(true, relaxed);
  moved();
}

Waiting::Waiting(std::size_t bucket, std::size_t bytes) : Waiting() {
  g_marks.bucket.store(static_cast<std::uint32_t>(bucket), relaxed);
  g_marks.bytes.store(bytes, relaxed);
  g_marks.phase.store(Phase::reduction, relaxed);
}

Waiting::~Waiting() {
  if (std::uncaught_exceptions() > exceptions_) return;
  g_marks.waiting.store(false, relaxed);
  enter(before_);
}

std::filesystem::path post_mortem_room(const std::filesystem::path& directory) {
  return directory / ".post-mortem";
}

std::size_t post_mortem_bytes(int world) {
  constexpr std::size_t of_all = 8192, of_a_rank = 512;
  return of_all + of_a_rank * static_cast<std::size_t>(world);
}

void set_directory(const std::filesystem::path& directory) {
  const std::scoped_lock lock(place().mutex);
  place().directory = directory;
}

std::filesystem::path directory() {
  const std::scoped_lock lock(place().mutex);
  return place().directory;
}

}  // namespace activity
}  // namespace lockstep::comm
