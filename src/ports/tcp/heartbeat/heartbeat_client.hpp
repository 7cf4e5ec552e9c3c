#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ports/tcp/connect_attempt.hpp"
#include "ports/tcp/heartbeat/heartbeat_thread.hpp"
#include "ports/tcp/heartbeat/node_probe.hpp"

namespace lockstep::tcp {

/// Any other rank's heartbeat: it watches rank 0.
class HeartbeatClient final : public HeartbeatThread {
 public:
  /// `card`: where rank 0's heartbeat listens.
  HeartbeatClient(liveness::HeartbeatSpec spec, int rank, std::vector<KnownRank> ranks,
                  ListenerCard card, std::optional<NodeProbe> probe);
  ~HeartbeatClient() override { stop(); }

 private:
  void add_to(std::vector<pollfd>& polled) const override;
  double longest_turn_s() const override;
  void listen() override;
  void hear();
  void take_message(const std::string& message);
  void judge();
  void end_as_told(const liveness::End& end);
  void beat(double starved_s) override;
  void begin_to_connect();
  void continue_connecting();
  void look_for_absence(const AbsenceQuestion& question) override;
  void report_failure(const liveness::End& end) override;
  void insist();
  void say_goodbye() override;
  bool reports() const;

  ListenerCard card_;
  std::optional<ConnectAttempt> attempt_;  ///< the current one
  std::optional<NodeProbe> probe_;         ///< on the first rank of a node
  Wire wire_;
  double heard_s_ = 0;
  bool left_ = false;  ///< goodbye was said, by rank 0 or to it
};

}  // namespace lockstep::tcp
