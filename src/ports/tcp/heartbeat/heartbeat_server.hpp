#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/liveness/links.hpp"
#include "ports/tcp/heartbeat/heartbeat_thread.hpp"
#include "ports/tcp/heartbeat/node_probe.hpp"
#include "ports/tcp/meeting/handshake.hpp"

namespace lockstep::tcp {

/// Rank 0's heartbeat: it watches all others.
///
/// It may serve thousands of ranks, on a core that also computes. So it looks only at connections
/// that have something to read (epoll), reads each once, and takes turns at most twenty times a
/// second: what comes in between is read together. Its own beats, which only say that rank 0 is
/// alive, go out once a second, or twenty times in the timeout.
class HeartbeatServer final : public HeartbeatThread {
 public:
  HeartbeatServer(liveness::HeartbeatSpec spec, std::vector<KnownRank> ranks, HandshakeServer door,
                  std::optional<NodeProbe> probe);
  ~HeartbeatServer() override { stop(); }

 private:
  struct Peer {
    Wire wire;
    double heard_s = 0;
    bool met = false, left = false;
    bool looked_for = false;  ///< since its last beat, a neighbour was asked for its process
  };

  void add_to(std::vector<pollfd>& polled) const override;
  double shortest_turn_s() const override;
  double longest_turn_s() const override;
  std::uint16_t own_port() const override { return door_.port(); }

  void listen() override;
  std::string reason_against(const Hello& hello) const;
  void let_in(const Hello& hello, Wire wire);
  void hear(int rank, Peer& peer);
  void note_end(int rank, const Peer& peer);
  void look_at_closed();
  void take_message(int rank, Peer& peer, const std::string& message);
  void hear_beat(int rank, const Beat& beat);
  void hear_report(int rank, const ProbeReport& report);

  void beat(double starved_s) override;
  void look_for_silent_ranks();
  void warn_of_starved(int rank, double seconds);
  void warn_of_unheard();
  void say_goodbye() override;
  void tell_all(const std::string& message);

  void judge();
  void judge_links();
  void ask_for_links();
  void end_for(const std::vector<int>& ranks);
  void end_for(const std::vector<liveness::Links::Link>& links);
  /// Reports, leaves the post-mortem, and ends all ranks.
  void end_all(const std::string& text, const liveness::Cause& cause);
  void other_failed(int rank, const liveness::End& end);
  void report_failure(const liveness::End& end) override;
  AbsenceFinding find(const AbsenceQuestion& question) const;
  void look_for_absence(const AbsenceQuestion& question) override { answer(find(question)); }
  std::string lateness() const;

  HandshakeServer door_;
  std::optional<NodeProbe> probe_;
  Socket ready_;  ///< the epoll of all peers
  std::vector<Peer> peers_;
  liveness::Links links_;
  std::uint64_t round_ = 0;  ///< of probes, the newest
  /// Ranks of this node whose connection has ended, and whose process was not seen to end.
  std::set<int> closed_;
  bool asking_ = false;  ///< since asked_s_, whether the nodes reach each other
  double asked_s_ = 0;
  double began_s_ = 0;
  double tell_s_ = 0;     ///< when the next beat to all is due
  double to_tell_s_ = 0;  ///< for how long this rank got no core, which that beat says
  bool warned_ = false;
  std::set<std::string> warned_of_;  ///< nodes that are overloaded
};

}  // namespace lockstep::tcp
