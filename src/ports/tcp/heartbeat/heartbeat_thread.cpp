#include "ports/tcp/heartbeat/heartbeat_thread.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::tcp {
namespace {

// Often enough to know where a rank was, but at most a few thousand messages per second.
double interval_of(double timeout_s, std::size_t world) {
  return std::min(std::clamp(static_cast<double>(world) / 4000, 0.25, 1.0), timeout_s / 4);
}

// Of a rank's own standstill, this much counts as the others' silence.
constexpr double most_of_a_turn_s = 3;

// Ranks of one node fall silent within one interval of each other, plus or minus the delays of
// ranks whose cores are busy.
constexpr double gather_s = 0.3, busy_s = 2;

constexpr int after_error_ms = 100;  // an error that repeats takes no core

constexpr double absence_answer_s = 1;  // how long a thread waits for an answer about absent ranks

std::chrono::duration<double> seconds_of(double seconds) {
  return std::chrono::duration<double>(seconds);
}

/// Runs `work` on a separate thread, and returns without it when it takes longer. Where the system
/// gives no thread, it runs on this one.
void within(double seconds, const std::function<void()>& work) {
  const auto done = std::make_shared<std::promise<void>>();
  try {
    std::thread([work, done] {
      work();
      done->set_value();
    }).detach();
  } catch (const std::system_error&) {
    return work();
  }
  done->get_future().wait_for(seconds_of(seconds));
}

}  // namespace

std::vector<std::string> hosts_of(const std::vector<KnownRank>& ranks) {
  std::vector<std::string> hosts;
  for (const KnownRank& place : ranks) hosts.push_back(place.host);
  return hosts;
}

HeartbeatThread::HeartbeatThread(liveness::HeartbeatSpec spec, int rank,
                                 std::vector<KnownRank> ranks)
    : spec_(std::move(spec)),
      rank_(rank),
      ranks_(std::move(ranks)),
      roster_(hosts_of(ranks_)),
      interval_s_(interval_of(spec_.timeout_s, ranks_.size())),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_)
    throw Error(fmt::format("rank {} on {} cannot open what its heartbeat needs: {}", rank_,
                            place(rank_).host, std::strerror(errno)));
}

void HeartbeatThread::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(
        fmt::format("rank {} on {} gets no thread for its heartbeat: {}. Is the limit of "
                    "processes (ulimit -u) or of memory reached?",
                    rank_, place(rank_).host, error.code().message()));
  }
}

void HeartbeatThread::stop() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  wake();
  thread_.join();
}

void HeartbeatThread::wake() {
  const std::uint64_t one = 1;
  static_cast<void>(::write(wake_.get(), &one, sizeof one));
  changed_.notify_all();
}

void HeartbeatThread::run() {
  liveness::StarvationWatch watch;
  turn_s_ = next_s_ = now_s();
  for (bool more = true; more;) {
    attempt([&] { more = turn(watch); });
    attempt([&] {
      if (more) sleep();
    });
  }
  attempt([this] { say_goodbye(); });
  const std::scoped_lock lock(mutex_);
  reported_ = true;
  changed_.notify_all();
}

/// False when it was the last one.
bool HeartbeatThread::turn(liveness::StarvationWatch& watch) {
  std::optional<liveness::End> failure;
  {
    const std::scoped_lock lock(mutex_);
    failure = failure_;
    if (ending_ && !failure) return false;
  }
  if (failure) {
    attempt([&] { report_failure(*failure); });
    return false;
  }
  const double now = now_s(), passed_s = now - std::exchange(turn_s_, now);
  // Time in which this thread got no core, or its process was suspended, is not the others'
  // silence.
  starved_s_ = watch.turn(passed_s) ? passed_s : 0;
  roster_.pass(std::min(passed_s, starved_s_ > 0 ? interval_s_ : most_of_a_turn_s));
  attempt([this] { listen(); });
  if (const auto question = new_question()) look_for_absence(*question);
  if (now < next_s_) return true;
  next_s_ = now_s() + interval_s_;
  if (over_) return true;
  beat(watch.take());
  warn_of_descriptors();
  return true;
}

void HeartbeatThread::attempt(const std::function<void()>& part) noexcept {
  try {
    return part();
  } catch (const std::exception& error) {
    if (!std::exchange(warned_of_error_, true)) try {
        log::warn(fmt::format("rank {} on {}: its heartbeat has an error, and continues: {}", rank_,
                              place(rank_).host, error.what()));
      } catch (const std::exception&) {  // no memory even for this
        constexpr std::string_view text = "lockstep: warning: a heartbeat has no memory\n";
        static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
      }
  }
  ::poll(nullptr, 0, after_error_ms);
}

/// A rank whose descriptors are used up cannot connect or open anything, and mostly says nothing.
void HeartbeatThread::warn_of_descriptors() {
  if (warned_of_descriptors_) return;
  const std::string lack = describe_lack_of_descriptors(own_port());
  if (lack.empty()) return;
  warned_of_descriptors_ = true;
  log::warn(fmt::format("rank {} on {}: {}. What connects there? A higher limit helps (ulimit -Hn)",
                        rank_, place(rank_).host, lack));
}

/// Until the next turn.
void HeartbeatThread::sleep() {
  if (const double rest_s = turn_s_ + shortest_turn_s() - now_s(); rest_s > 0) wait(rest_s, true);
  const double next_s = std::min(next_s_, now_s() + longest_turn_s());
  wait(first_lost_s_ ? gather_s / 3 : std::max(next_s - now_s(), 0.0), false);
}

/// Until the time is over, or something wakes it.
void HeartbeatThread::wait(double seconds, bool only_for_wake) {
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}};
  if (!only_for_wake) add_to(entries);
  poll(entries.data(), entries.size(), static_cast<int>(seconds * 1e3) + 1);
  std::uint64_t times = 0;  // how often it was woken; the next turn finds out why
  if (!only_for_wake) static_cast<void>(::read(wake_.get(), &times, sizeof times));
}

void HeartbeatThread::fail(const liveness::End& end) {
  std::unique_lock lock(mutex_);
  failure_ = end;
  wake();
  changed_.wait_for(lock, seconds_of(2 * patience_s), [this] { return reported_; });
}

std::optional<comm::Absence> HeartbeatThread::find_absence(double waited_s) {
  std::unique_lock lock(mutex_);
  asked_.waited_s = waited_s;
  const std::uint64_t mine = ++asked_.number;
  wake();
  const bool answered = changed_.wait_for(lock, seconds_of(absence_answer_s),
                                          [&] { return answered_ >= mine || reported_; });
  return answered && !reported_ ? absence_ : std::nullopt;
}

std::optional<AbsenceQuestion> HeartbeatThread::new_question() {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(passed_on_, asked_.number) == asked_.number) return std::nullopt;
  return asked_;
}

void HeartbeatThread::answer(AbsenceFinding finding) {
  const std::scoped_lock lock(mutex_);
  answered_ = std::max(answered_, finding.number);
  absence_ = std::move(finding.absence);
  changed_.notify_all();
}

bool HeartbeatThread::ended_with_process(int rank, double heard_s) const {
  return now_s() - heard_s < sudden_s ||
         (shares_node(rank) && liveness::has_ended(place(rank).process));
}

double HeartbeatThread::quiet_s() const { return busy_s + 4 * interval_s_; }

std::vector<int> HeartbeatThread::lost() {
  if (roster_.missing(spec_.timeout_s).empty()) {
    first_lost_s_.reset();
    return {};
  }
  const double now = now_s();
  if (!first_lost_s_) first_lost_s_ = now;
  if (now - *first_lost_s_ < gather_s) return {};
  const double together_s = std::max(2 * interval_s_, std::min(busy_s, spec_.timeout_s / 5));
  return roster_.missing(spec_.timeout_s - together_s);
}

void HeartbeatThread::leave_post_mortem_in(const std::filesystem::path& directory) {
  const std::scoped_lock lock(mutex_);
  directory_ = directory;
}

void HeartbeatThread::report(const std::string& text, const liveness::Cause& cause) {
  attempt([&] {
    const std::string post_mortem = liveness::post_mortem(roster_, cause, rank_);
    std::unique_lock lock(mutex_);
    const std::filesystem::path directory = directory_;
    lock.unlock();
    within(patience_s, [=, rank = rank_] {
      try {
        if (!text.empty()) log::error(text);
        if (!directory.empty()) liveness::write_post_mortem(directory, rank, post_mortem);
      } catch (const std::exception& error) {
        log::warn(error.what());
      }
    });
  });
}

bool HeartbeatThread::wait_for_failure(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, seconds_of(seconds),
                           [this] { return failure_.has_value() || ending_; });
}

void HeartbeatThread::end_process(int status, double grace_s) noexcept {
  over_ = true;
  try {
    if (!wait_for_failure(grace_s)) spec_.end(status);
  } catch (const std::exception&) {  // no memory for a last word
    std::_Exit(status);
  }
}

}  // namespace lockstep::tcp
