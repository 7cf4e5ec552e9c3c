#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/liveness/heartbeat.hpp"
#include "ports/tcp/heartbeat/heartbeat_server.hpp"
#include "ports/tcp/heartbeat/heartbeat_thread.hpp"
#include "ports/tcp/heartbeat/node_probe.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {
namespace {

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

HeartbeatClient::HeartbeatClient(liveness::HeartbeatSpec spec, int rank,
                                 std::vector<KnownRank> ranks, ListenerCard card,
                                 std::optional<NodeProbe> probe)
    : HeartbeatThread(std::move(spec), rank, std::move(ranks)),
      card_(std::move(card)),
      probe_(std::move(probe)) {
  start();
}

void HeartbeatClient::add_to(std::vector<pollfd>& polled) const {
  if (wire_.open()) polled.push_back({wire_.handle(), POLLIN, 0});
  if (attempt_) attempt_->add_to(polled);
  if (probe_) probe_->add_to(polled);
}

double HeartbeatClient::longest_turn_s() const {
  if (heard_s_ > 0 && !wire_.open() && shares_node(0)) return closed_turn_s;
  return probe_ && probe_->sends() ? NodeProbe::turn_s : interval_s_;
}

void HeartbeatClient::listen() {
  continue_connecting();
  hear();
  if (const auto report = probe_ ? probe_->poll() : std::nullopt; report && wire_.open())
    wire_.send(marked(report_mark, *report));
  if (!over_) judge();
}

void HeartbeatClient::judge() {
  if (lost().empty()) return;
  if (shares_node(0)) roster_.seen(0, look_at(0));
  const std::string what =
      fmt::format("{}, or this node is cut off from it", roster_.describe_missing({0}));
  report(reports() ? fmt::format("missing: {}; rank {} is in {}; ending the job", what, rank_,
                                 describe(spec_.activity.now()))
                   : "",
         {.reason = "missing: " + what, .ending = Ending::lost_rank, .missing = {0}});
  end_process(spec_.lost_status, reports() ? 0 : 1);
}

/// A connection that was found ended when this rank sent something counts, too.
void HeartbeatClient::hear() {
  if (wire_.open()) {
    wire_.flush();
    for (auto message = wire_.receive(); message; message = wire_.take()) {
      heard_s_ = now_s();
      attempt([&] { take_message(*message); });
    }
  }
  if (left_)
    roster_.left(0);
  else if (heard_s_ > 0 && !wire_.open() && !attempt_ && !over_ && ended_with_process(0, heard_s_))
    roster_.broke(0);
}

void HeartbeatClient::take_message(const std::string& message) {
  switch (mark_of(message)) {
    case beat_mark: {
      const Beat beat = unmarked<Beat>(message);
      if (beat.starved_s > 0) roster_.starved(0, beat.starved_s);
      return roster_.heard(0, beat.activity);
    }
    case finding_mark:
      return answer(unmarked<AbsenceFinding>(message));
    case look_mark: {
      const int rank = unmarked<int>(message);
      if (rank >= 0 && rank < world()) wire_.send(marked(sight_mark, Sight{rank, look_at(rank)}));
      return;
    }
    case probe_mark:
      if (probe_) probe_->begin(unmarked<std::uint64_t>(message));
      return;
    case goodbye_mark:
      left_ = true;
      return;
    case end_mark:
      if (!over_) end_as_told(unmarked<liveness::End>(message));
  }
}

/// Rank 0 writes the post-mortem first; when it ends, the connection breaks.
void HeartbeatClient::end_as_told(const liveness::End& end) {
  over_ = true;
  if (starved_s_ > spec_.timeout_s / 2)  // rank 0 took this rank for a lost one
    log::warn(
        fmt::format("rank 0 heard nothing of this rank because its heartbeat was not "
                    "scheduled for {:.0f} s: {} is overloaded",
                    starved_s_, place(rank_).host));
  Wire* const only[] = {&wire_};
  for (const double until_s = now_s() + 2 * patience_s; wire_.open() && now_s() < until_s;
       wait_for(only))
    wire_.receive();
  end_process(end.status, 0.2);
}

void HeartbeatClient::beat(double starved_s) {
  if (left_) return;
  const bool stalled = now_s() - heard_s_ > std::max(spec_.timeout_s / 4, 1.5 * sudden_s);
  if (!attempt_ && (!wire_.open() || stalled)) begin_to_connect();
  if (wire_.open()) wire_.send(make_beat(spec_.activity.now(), starved_s));
}

void HeartbeatClient::begin_to_connect() {
  attempt_.emplace(card_, heartbeat_purpose, rank_, world());
}

/// From then on only the address that answered is tried.
void HeartbeatClient::continue_connecting() {
  if (!attempt_) return;
  if (auto again = attempt_->poll()) {
    card_.addresses = {std::string(attempt_->address())};
    wire_ = std::move(*again);
    wire_.set_limit(heartbeat_message_limit);
    heard_s_ = now_s();
    wire_.send(make_beat(spec_.activity.now()));
    attempt_.reset();
  } else if (attempt_->failed()) {
    attempt_.reset();
  }
}

/// This rank hears only rank 0, which hears all ranks.
void HeartbeatClient::look_for_absence(const AbsenceQuestion& question) {
  if (!roster_.missing(quiet_s()).empty())
    answer({question.number,
            comm::Absence{{0}, "missing: " + roster_.describe_missing({0}), Ending::lost_rank}});
  else if (wire_.open())
    wire_.send(marked(question_mark, question));
  else
    answer({question.number, std::nullopt});
}

void HeartbeatClient::report_failure(const liveness::End& end) {
  if (over_) return;
  insist();
  if (!wire_.open()) return;
  wire_.send(make_end(failure_mark, end));
  left_ = true;
  Wire* const only[] = {&wire_};
  for (const double until_s = now_s() + patience_s; wire_.open() && now_s() < until_s;
       wait_for(only)) {
    wire_.flush();
    if (const auto answer = wire_.receive(); mark_of(answer.value_or("")) == end_mark) return;
  }
}

/// Keeps connecting for up to a second, for a message that cannot wait for the next turn.
void HeartbeatClient::insist() {
  if (wire_.open()) return;
  if (!attempt_) begin_to_connect();
  for (const double until_s = now_s() + 1; attempt_ && now_s() < until_s; continue_connecting()) {
    std::vector<pollfd> polled;
    attempt_->add_to(polled);
    poll(polled.data(), polled.size(), 50);
  }
}

void HeartbeatClient::say_goodbye() {
  if (wire_.open()) wire_.send(std::string(1, goodbye_mark));
}

/// When rank 0 is missing, one rank of each node reports it: nodes may be cut off from each other.
bool HeartbeatClient::reports() const {
  const auto first = std::find_if(ranks_.begin() + 1, ranks_.end(), [this](const KnownRank& one) {
    return one.host == place(rank_).host;
  });
  return first - ranks_.begin() == rank_;
}

}  // namespace

}  // namespace lockstep::tcp

namespace lockstep::liveness {

std::unique_ptr<Heartbeat> start_heartbeat(const HeartbeatSpec& spec, comm::Control& control) {
  if (control.world() == 1) return nullptr;
  constexpr const char* phase = "start of the heartbeat";
  std::vector<tcp::KnownRank> ranks =
      comm::gather_records(control, tcp::KnownRank{spec.host, own_process()}, phase);
  tcp::ListenerCard card;
  tcp::Listener listener;
  if (control.rank() == 0) {
    listener = tcp::listen_on(std::array<std::uint16_t, 1>{0});
    card = {tcp::new_nonce(), listener.port, tcp::own_addresses()};
  }
  card = comm::broadcast_record(control, card, phase);
  const std::vector<std::string> hosts = tcp::hosts_of(ranks);
  std::optional<tcp::NodeProbe> probe = tcp::make_node_probe(hosts, card.secret, control);
  if (control.rank() == 0)
    return std::make_unique<tcp::HeartbeatServer>(
        spec, std::move(ranks), tcp::HandshakeServer(card.secret, std::move(listener)),
        std::move(probe));
  if (hosts[static_cast<std::size_t>(control.rank())] == hosts[0])
    card.addresses.insert(card.addresses.begin(), "127.0.0.1");
  return std::make_unique<tcp::HeartbeatClient>(spec, control.rank(), std::move(ranks),
                                                std::move(card), std::move(probe));
}

}  // namespace lockstep::liveness
