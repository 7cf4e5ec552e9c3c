#pragma once

#include <poll.h>

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/owned.hpp"
#include "lockstep/liveness/heartbeat.hpp"
#include "lockstep/liveness/post_mortem.hpp"
#include "lockstep/liveness/process_state.hpp"
#include "lockstep/liveness/roster.hpp"
#include "ports/tcp/heartbeat/heartbeat_wire.hpp"

namespace lockstep::tcp {

/// A rank, as all others know it.
struct KnownRank {
  std::string host;
  liveness::ProcessId process;

  static void fields(auto& self, auto&& visit) { visit(self.host, self.process); }
};

/// By rank.
std::vector<std::string> hosts_of(const std::vector<KnownRank>& ranks);

/// The common part of rank 0's heartbeat and the others': the thread, its clock, and how a process
/// ends. What the thread throws (memory or open files are used up) is a warning, and the next turn
/// tries again.
/// **Thread safety:** any thread may call the public methods. Members before `private`
/// belong to the heartbeat's thread, and the main thread never touches them.
class HeartbeatThread : public liveness::Heartbeat {
 public:
  void fail(const liveness::End& end) final;
  std::optional<comm::Absence> find_absence(double waited_s) final;
  void leave_post_mortem_in(const std::filesystem::path& directory) final;

 protected:
  HeartbeatThread(liveness::HeartbeatSpec spec, int rank, std::vector<KnownRank> ranks);
  void start();  ///< starts the thread; the last call in a derived class's constructor
  void stop();   ///< says goodbye; the first call in a derived class's destructor

  // Called on the thread.
  virtual void add_to(std::vector<pollfd>& polled) const = 0;  ///< what may wake it
  virtual void listen() = 0;
  virtual void beat(double starved_s) = 0;  ///< once every interval
  virtual void say_goodbye() = 0;
  virtual std::uint16_t own_port() const { return 0; }        ///< where others connect to this rank
  virtual void report_failure(const liveness::End& end) = 0;  ///< of this rank
  /// A thread of this process waits in find_absence() for answer(), which may be called later.
  virtual void look_for_absence(const AbsenceQuestion& question) = 0;
  virtual double shortest_turn_s() const { return 0; }  ///< messages wait for the turn's end
  virtual double longest_turn_s() const { return interval_s_; }
  void answer(AbsenceFinding finding);
  double quiet_s() const;  ///< a rank that is silent for longer counts as absent
  /// The process of a rank of this node, as of liveness::trouble_of.
  liveness::Trouble look_at(int rank) const { return liveness::trouble_of(place(rank).process); }
  bool shares_node(int rank) const { return place(rank).host == place(rank_).host; }
  /// Whether a rank's connection, which has ended, ended with its process: soon after its last
  /// message, or as this node sees. Else it may be the network's fault, and the timeout decides.
  bool ended_with_process(int rank, double heard_s) const;
  const KnownRank& place(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  int world() const { return static_cast<int>(ranks_.size()); }

  /// Runs one part of the work. What it throws does not keep the others from running.
  void attempt(const std::function<void()>& part) noexcept;
  /// Logs `text` (if not empty) and writes the post-mortem. Takes `patience_s` at most, since
  /// neither a log nor a file system may keep a process from ending.
  void report(const std::string& text, const liveness::Cause& cause);
  /// Ends the process after `grace_s`, unless the main thread ends it earlier.
  void end_process(int status, double grace_s) noexcept;
  /// The ranks that are lost; none yet while others may be lost within moments.
  std::vector<int> lost();

  static constexpr double patience_s = 3;
  static constexpr double sudden_s = 2.5;  ///< between a last message and a process's end
  /// A process that is killed closes its connections a moment before it has ended, and mpirun of
  /// Open MPI 5 leaves half a second in which to say that: the longest turn until it is known.
  static constexpr double closed_turn_s = 0.05;
  const liveness::HeartbeatSpec spec_;
  const int rank_;
  const std::vector<KnownRank> ranks_;
  liveness::Roster roster_;
  const double interval_s_;  ///< between two beats
  bool over_ = false;        ///< nothing is left to watch
  double starved_s_ = 0;     ///< before this turn, the thread got no core for that long

 private:
  void run();
  bool turn(liveness::StarvationWatch& watch);
  void sleep();
  void wait(double seconds, bool only_for_wake);
  void warn_of_descriptors();
  bool wait_for_failure(double seconds);
  void wake();
  std::optional<AbsenceQuestion> new_question();

  std::optional<double> first_lost_s_;
  double turn_s_ = 0, next_s_ = 0;  ///< when the last turn began, when the next beat is due
  bool warned_of_descriptors_ = false, warned_of_error_ = false;
  Descriptor wake_;  // an eventfd
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false, reported_ = false;  // under the mutex, like the next five
  std::optional<liveness::End> failure_;
  AbsenceQuestion asked_;  ///< the newest
  std::uint64_t passed_on_ = 0, answered_ = 0;
  std::optional<comm::Absence> absence_;
  std::filesystem::path directory_;
  std::thread thread_;
};

}  // namespace lockstep::tcp
