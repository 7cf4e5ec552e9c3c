#include "lockstep/train/ending/notify.hpp"

#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"

namespace lockstep::train {
namespace {

struct Notice {
  std::mutex mutex;
  std::string command, run, status, reason;
};

Notice& the_notice() {
  static Notice notice;
  return notice;
}

/// Runs its second argument with those that follow. What that prints is passed on up to 64 kB:
/// more of it may fill the disk that has the log. Like the command, it lives until its time is
/// over.
constexpr const char* limited_output = R"(command=$1; shift; exec 4>&1; trap : TERM
status=$( trap : TERM
          { { trap : TERM; sh -c "$command" "$@" 2>&1 3>&- 4>&-; echo $? >&3; } |
            { head -c 65536; cat >/dev/null; } >&4 3>&-; } 3>&1 )
exit "${status:-1}")";

/// `timeout` keeps the limit even where the launcher has killed this process.
ChildSpec child_for(const std::string& command, const std::string& status, const std::string& run,
                    const std::string& reason) {
  return {.words = {"timeout", "--kill-after=1", fmt::format("{}", notice_limit_s), "sh", "-c",
                    limited_output, "notify", command, "notify", status, run, reason},
          .log = {},
          .environment = {"LOCKSTEP_STATUS=" + status, "LOCKSTEP_RUN=" + run,
                          "LOCKSTEP_REASON=" + reason},
          .own_session = true};
}

std::string failure_of(std::optional<int> status, double patience_s, double took_s) {
  constexpr int timed_out = 124, killed = 128 + 9;  // of timeout(1)
  if (!status && patience_s < notice_limit_s)
    return fmt::format("it still runs; it is ended after {} s", notice_limit_s);
  if (!status || *status == timed_out || (*status == killed && took_s >= notice_limit_s))
    return fmt::format("it was ended after {} s", notice_limit_s);
  return *status == 0 ? "" : fmt::format("it ended with status {}", *status);
}

}  // namespace

void arm_notice(const std::string& command) {
  const std::scoped_lock lock(the_notice().mutex);
  the_notice().command = command;
}

void note_run(const std::filesystem::path& folder) {
  std::error_code none;
  const std::filesystem::path whole = std::filesystem::absolute(folder, none);
  const std::scoped_lock lock(the_notice().mutex);
  the_notice().run = whole.string();
}

void note_end(const std::string& status, const std::string& reason) {
  const std::scoped_lock lock(the_notice().mutex);
  the_notice().status = status;
  the_notice().reason = reason;
}

void give_notice(double patience_s, const std::string& status, const std::string& reason) {
  std::unique_lock lock(the_notice().mutex);
  const std::string command = std::exchange(the_notice().command, "");
  if (command.empty()) return;
  const bool noted = !the_notice().status.empty();
  const ChildSpec child = child_for(command, noted ? the_notice().status : status, the_notice().run,
                                    noted ? the_notice().reason : reason);
  lock.unlock();
  std::string failure;
  try {
    constexpr double end_of_it_s = 2;  // timeout(1) sends SIGTERM first
    const double most_s = patience_s < notice_limit_s ? patience_s : notice_limit_s + end_of_it_s;
    const double began_s = now_s();
    const std::optional<int> ended = wait_for_child(start_child(child), most_s);
    failure = failure_of(ended, patience_s, now_s() - began_s);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (!failure.empty()) log::warn(fmt::format("notify: '{}': {}", command, failure));
}

}  // namespace lockstep::train
