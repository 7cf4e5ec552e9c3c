#include "app/start/end.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include "app/commands.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/worlds/tcp.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/train/ending/notify.hpp"

namespace lockstep::app {
namespace {

constexpr double turn_s = 2, turn_at_the_start_s = 10;
// For ranks of one step to find each other: a busy node starts them seconds apart.
constexpr double meet_s = 5;
constexpr std::chrono::seconds mpi_patience{60};

/// A launcher sends SIGTERM about a second after the end of rank 0. srun returns the highest status
/// of all ranks, so all must be the same.
template <int status>
void end_with(int) {
  std::_Exit(status);
}
constexpr std::array ends{end_with<0>, end_with<1>, end_with<2>, end_with<3>, end_with<4>};
static_assert(ends.size() == status_lost_rank + 1);

/// Calls `end` after a minute.
class Patience {
 public:
  explicit Patience(const std::function<void()>& end) {
    try {
      thread_ = std::jthread([this, end](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, stop, mpi_patience, [&] { return stop.stop_requested(); }))
          end();
      });
    } catch (const std::system_error&) {
      // Then MPI's start may last for ever.
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace

int RankEnd::rank() const {
  return launch_.rank.world > 1 ? launch_.rank.rank : rank_by_environment().rank;
}

bool RankEnd::under_mpirun() {
  return cluster::process_environment()("OMPI_COMM_WORLD_SIZE").has_value();
}

int RankEnd::all_know(int status, const std::function<void()>& say) {
  const bool speaks = rank() == 0;
  if (speaks && say) say();
  const bool rank_0_works = launch_.kind == Launch::Kind::left_to_rank_0;
  if (launch_.kind == Launch::Kind::independent || (status == status_done && !rank_0_works))
    return status;
  if (!under_mpirun()) {
    if (!launch_.control && !speaks && !rank_0_works) hears_rank_0(status);
    return status;
  }
  if (rank_0_works && !speaks) return status;
  if (launch_.control && !say) {
    launch_.control->barrier("the end");
    launch_.heartbeat.reset();  // says goodbye, so that no rank is missed
  }
  join_mpi(status, "");
  if (!launch_.world) return status;
  if (status == status_done) return launch_.world->meet(), status;
  hears_rank_0(status);
  comm::World::abort(status);
}

int RankEnd::one_knows(const liveness::End& end) {
  const auto say = [&] { log::error(end.why); };
  if (launch_.kind == Launch::Kind::independent) return say(), end.status;
  if (rank() != 0) {
    join_mpi(end.status, fmt::format("error: {}\n", one_line(end.why)));
    if (!hears_rank_0(end.status, end.why)) say();
  } else {
    say();
    join_mpi(end.status, "");
    try {
      if (const auto place = launch_.meeting_place())
        comm::turn_ranks_away(*place, rank_by_environment(), end.why, meet_s);
    } catch (const Error&) {
      // Then the others speak, too.
    }
  }
  if (launch_.heartbeat) launch_.heartbeat->fail(end);
  if (launch_.world && (launch_.world->facts().world > 1 || under_mpirun()))
    comm::World::abort(end.status);
  return end.status;
}

void RankEnd::nobody_answers(int status) {
  const bool lost = status == status_lost_rank;
  const char* reason = lost ? "another rank was lost: see post-mortem.json"
                            : "another rank failed: see post-mortem.json";
  observe::end_metrics(
      {.status = "failed", .reason = reason, .ending = lost ? Ending::lost_rank : Ending::unknown});
  train::give_notice(train::short_notice_s, "failed", reason);
  std::_Exit(status);
}

/// Lets rank 0 speak first: at the start all ranks do the same, but on a busy node not at the same
/// time. Another launcher than mpirun would let the others wait for this rank. Where the ranks have
/// not met, this one goes to the meeting and leaves: the others notice at once. True when rank 0 is
/// known to have said `what`.
bool RankEnd::hears_rank_0(int status, const std::string& what) const {
  if (rank() == 0) return false;
  std::signal(SIGTERM, ends.at(static_cast<std::size_t>(status)));
  const bool starting = launch_.activity.now().phase == comm::Phase::start_up;
  const double end_s =
      now_s() + (launch_.world && under_mpirun() && starting ? turn_at_the_start_s : turn_s);
  try {
    const auto place = what.empty() ? std::nullopt : launch_.meeting_place();
    if (place) {
      comm::meet_over_tcp(*place, rank_by_environment(), {.deadline_s = meet_s});
      return false;  // rank 0 has no such fault
    }
  } catch (const comm::MissingRanks& missing) {
    if (missing.told && missing.what() == comm::ended_text(what)) return true;
  } catch (const Error&) {
    // No one came: all have the same fault, or have not started yet.
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(end_s - now_s()));
  return false;
}

/// Starts MPI, under mpirun, on a rank that ends before Launch::start(). The other ranks have the
/// same fault, or start MPI anyway: on a busy node some seconds later. If they do not come within a
/// minute, this process ends.
void RankEnd::join_mpi(int status, const std::string& last_words) {
  if (launch_.world || !under_mpirun()) return;
  const Patience patience([&] {
    if (::write(STDERR_FILENO, last_words.data(), last_words.size()) < 0) std::_Exit(status);
    std::_Exit(status);
  });
  try {
    launch_.world = std::make_unique<comm::World>(launch_.argc, launch_.argv);
  } catch (const Error&) {
    // Then mpirun says what it says.
  }
}

}  // namespace lockstep::app
