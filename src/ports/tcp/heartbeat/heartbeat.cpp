#include "lockstep/liveness/heartbeat.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/join.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/rank_list.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/liveness/links.hpp"
#include "ports/tcp/connect_attempt.hpp"
#include "ports/tcp/handshake_server.hpp"
#include "ports/tcp/heartbeat/heartbeat_thread.hpp"
#include "ports/tcp/heartbeat/node_probe.hpp"
#include "ports/tcp/own_addresses.hpp"

namespace lockstep::comm {
namespace {

// A connection that ends so soon after its last message ended with its process. Later it may be the
// network's fault, and the timeout decides.
constexpr double sudden_s = 2.5;

// After it, rank 0 asks for probes again: reports may have been lost with a connection.
constexpr double longest_round_s = 15;

constexpr std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

/// Rank 0's heartbeat: it watches all others.
class HeartbeatServer final : public HeartbeatThread {
 public:
  HeartbeatServer(liveness::HeartbeatSpec spec, std::vector<std::string> hosts,
                  HandshakeServer door)
      : HeartbeatThread(std::move(spec), 0, std::move(hosts)),
        door_(std::move(door)),
        links_(hosts_) {
    start();
  }
  ~HeartbeatServer() override { stop(); }

 private:
  struct Peer {
    Wire wire;
    double heard_s = 0;
    bool left = false;
  };

  void add_to(std::vector<pollfd>& polled) const override {
    door_.add_to(polled);
    for (const auto& [rank, peer] : peers_)
      if (peer.wire.open()) polled.push_back({peer.wire.handle(), POLLIN, 0});
  }

  void listen() override {
    door_.admit([this](const Hello& hello) { return reason_against(hello); },
                [this](const Hello& hello, Wire wire) { let_in(hello, std::move(wire)); });
    for (auto& [rank, peer] : peers_) hear(rank, peer);
    if (!over_) judge();
  }

  std::string reason_against(const Hello& hello) const {
    const int world = static_cast<int>(hosts_.size());
    const bool right = hello.job == heartbeat_purpose && hello.world == world && hello.rank > 0 &&
                       hello.rank < world;
    return right ? "" : "not a rank of this world's heartbeat";
  }

  /// A rank may come again when its connection has stalled.
  void let_in(const Hello& hello, Wire wire) {
    Peer& peer = peers_[hello.rank];
    peer.wire = std::move(wire);
    peer.wire.set_limit(heartbeat_message_limit);
    peer.heard_s = 0;  // the peer may drop this connection if the answer comes too late
  }

  void hear(int rank, Peer& peer) {
    if (!peer.wire.open()) return;
    peer.wire.flush();
    while (const auto message = peer.wire.receive()) {
      peer.heard_s = now_s();
      if (const auto beat = read_beat(*message)) roster_.heard(rank, *beat);
      if (message->front() == question_mark)
        peer.wire.send(make_finding(find(read_question(*message))));
      if (message->front() == report_mark) hear_report(rank, read_report(*message));
      if (message->front() == goodbye_mark) peer.left = true;
      if (message->front() == failure_mark) {
        peer.left = true;
        if (!over_) other_failed(rank, read_end(*message));
      }
    }
    if (peer.left)
      roster_.left(rank);
    else if (!peer.wire.open() && now_s() - peer.heard_s < sudden_s)
      roster_.broke(rank);
  }

  void beat() override {
    const Activity mine = activity::now();
    roster_.heard(0, mine);
    tell_all(make_beat(mine));
    warn_of_unheard();
  }

  void judge() {
    if (const std::vector<int> ranks = lost(); !ranks.empty()) return end_for(ranks);
    if (const auto links = find_broken_links(); !links.empty()) return end_for(links);
    // The ranks that wait have the same deadline, and need a little time to report.
    const double patient_s = 1.1 * spec_.deadline_s + 5;
    if (!roster_.stuck(patient_s)) return;
    const std::vector<int> late = roster_.late(patient_s);
    const std::string what =
        late.empty() ? fmt::format("no rank made progress for {:.0f} s, in {}", patient_s,
                                   describe(activity::now()))
                     : fmt::format("the others wait for {}", roster_.describe_late(late));
    report(what + "; ending the job", what, {});
    tell_all(make_end(end_mark, spec_.lost_status, what));
    end_process(spec_.lost_status, 0);
  }

  void end_for(const std::vector<int>& ranks) {
    const std::string what = fmt::format("{} of {} ranks missing: {}", ranks.size(), hosts_.size(),
                                         roster_.describe_missing(ranks));
    report(fmt::format("{}; rank 0 is in {}; ending the job", what, describe(activity::now())),
           what, ranks);
    tell_all(make_end(end_mark, spec_.lost_status, what));
    end_process(spec_.lost_status, 0);
  }

  void hear_report(int rank, const ProbeReport& report) {
    if (report.round == round_) links_.heard(rank, report.not_reached);
  }

  /// All ranks answer, all wait, and none has moved for the timeout: does the network between two
  /// other nodes work? Asks them, again after each timeout; empty until they have answered, and
  /// when it works.
  std::vector<liveness::Links::Link> find_broken_links() {
    if (links_.first_ranks().size() < 2) return {};
    if (!roster_.all_wait(spec_.timeout_s)) {
      asking_ = false;
      return {};
    }
    if (!asking_ || now_s() - asked_s_ > std::max(spec_.timeout_s, longest_round_s)) {
      asking_ = true;
      asked_s_ = now_s();
      ++round_;
      links_.begin();
      for (const int rank : links_.first_ranks())
        if (peers_[rank].wire.open()) peers_[rank].wire.send(make_probe(round_));
    }
    return links_.complete() ? links_.broken() : std::vector<liveness::Links::Link>();
  }

  void end_for(const std::vector<liveness::Links::Link>& links) {
    const std::string what = links_.describe(links);
    const std::vector<std::string> without = links_.nodes_to_leave_out(links);
    roster_.leave_out(without);
    report(fmt::format("{}; all ranks wait, rank 0 in {}; ending the job. A start without {} does "
                       "not need it",
                       what, describe(activity::now()), join(without, ", ")),
           what, {});
    tell_all(make_end(end_mark, spec_.lost_status, what));
    end_process(spec_.lost_status, 0);
  }

  /// That rank has printed its error. Most launchers now end the others; otherwise this does.
  void other_failed(int rank, const End& end) {
    over_ = true;
    report(lateness(), fmt::format("rank {} on {}: {}", rank, hosts_[index(rank)], end.why), {});
    tell_all(make_end(end_mark, end.status, end.why));
    end_process(end.status, patience_s);
  }

  void report_failure(const End& end) override {
    if (over_) return;
    report(lateness(), fmt::format("rank 0 on {}: {}", hosts_[0], end.why), {});
    tell_all(make_end(end_mark, end.status, end.why));
  }

  AbsenceFinding find(const AbsenceQuestion& question) const {
    const double unmoved_s = std::max(question.waited_s / 2, 2 * interval_s_);
    return {question.number, roster_.absence(quiet_s(), unmoved_s)};
  }

  void look_for_absence(const AbsenceQuestion& question) override { answer(find(question)); }

  std::string lateness() const {
    const std::vector<int> late = roster_.late(spec_.deadline_s / 2);
    return late.empty() ? "" : fmt::format("the others waited for {}", roster_.describe_late(late));
  }

  void warn_of_unheard() {
    if (now_s() - began_s_ < spec_.timeout_s || std::exchange(warned_, true)) return;
    const std::vector<int> unheard = roster_.never_heard();
    if (unheard.empty()) return;
    log::warn(fmt::format(
        "no heartbeat of {} (first: {}) has reached rank 0 on {} in {:.0f} s: is "
        "TCP between the nodes blocked? Without it the loss of such a rank is noticed "
        "late, after comm.deadline-s",
        rank_list(unheard), hosts_[index(unheard.front())], hosts_[0], spec_.timeout_s));
  }

  void say_goodbye() override { tell_all(std::string(1, goodbye_mark)); }
  std::uint16_t own_port() const override { return door_.port(); }

  void tell_all(const std::string& message) {
    for (auto& [rank, peer] : peers_)
      if (peer.wire.open()) peer.wire.send(message);
  }

  HandshakeServer door_;
  std::map<int, Peer> peers_;
  liveness::Links links_;
  std::uint64_t round_ = 0;  ///< of probes, the newest
  bool asking_ = false;      ///< since asked_s_, whether the nodes reach each other
  double asked_s_ = 0;
  double began_s_ = now_s();
  bool warned_ = false;
};

/// Any other rank's heartbeat: it watches rank 0.
class HeartbeatClient final : public HeartbeatThread {
 public:
  HeartbeatClient(liveness::HeartbeatSpec spec, int rank, std::vector<std::string> hosts,
                  ListenerCard card, std::optional<NodeProbe> probe)
      : HeartbeatThread(std::move(spec), rank, std::move(hosts)),
        card_(std::move(card)),
        probe_(std::move(probe)) {
    start();
  }
  ~HeartbeatClient() override { stop(); }

 private:
  void add_to(std::vector<pollfd>& polled) const override {
    if (wire_.open()) polled.push_back({wire_.handle(), POLLIN, 0});
    if (attempt_) attempt_->add_to(polled);
    if (probe_) probe_->add_to(polled);
  }

  void listen() override {
    continue_connecting();
    hear();
    if (const auto report = probe_ ? probe_->poll() : std::nullopt; report && wire_.open())
      wire_.send(make_report(*report));
    if (over_ || lost().empty()) return;
    const std::string what =
        fmt::format("{}, or this node is cut off from it", roster_.describe_missing({0}));
    report(reports() ? fmt::format("missing: {}; rank {} is in {}; ending the job", what, rank_,
                                   describe(activity::now()))
                     : "",
           "missing: " + what, {0});
    end_process(spec_.lost_status, reports() ? 0 : 1);
  }

  void hear() {
    if (!wire_.open()) return;
    wire_.flush();
    while (const auto message = wire_.receive()) {
      heard_s_ = now_s();
      if (const auto beat = read_beat(*message)) roster_.heard(0, *beat);
      if (message->front() == finding_mark) answer(read_finding(*message));
      if (message->front() == goodbye_mark) left_ = true;
      if (message->front() == probe_mark && probe_) probe_->begin(read_probe(*message));
      if (message->front() == end_mark && !over_) end_as_told(read_end(*message));
    }
    if (left_)
      roster_.left(0);
    else if (!wire_.open() && !attempt_ && !over_ && now_s() - heard_s_ < sudden_s)
      roster_.broke(0);
  }

  /// Rank 0 writes the post-mortem first; when it ends, the connection breaks.
  void end_as_told(const End& end) {
    over_ = true;
    Wire* const only[] = {&wire_};
    for (const double until_s = now_s() + 2 * patience_s; wire_.open() && now_s() < until_s;
         wait_for(only))
      wire_.receive();
    end_process(end.status, 0.2);
  }

  void beat() override {
    if (left_) return;
    const bool stalled = now_s() - heard_s_ > std::max(spec_.timeout_s / 4, 1.5 * sudden_s);
    if (!attempt_ && (!wire_.open() || stalled))
      attempt_.emplace(card_, heartbeat_purpose, rank_, static_cast<int>(hosts_.size()));
    if (wire_.open()) wire_.send(make_beat(activity::now()));
  }

  /// From then on only the address that answered is tried.
  void continue_connecting() {
    if (!attempt_) return;
    if (auto again = attempt_->poll()) {
      card_.addresses = {std::string(attempt_->address())};
      wire_ = std::move(*again);
      wire_.set_limit(heartbeat_message_limit);
      heard_s_ = now_s();
      wire_.send(make_beat(activity::now()));
      attempt_.reset();
    } else if (attempt_->failed()) {
      attempt_.reset();
    }
  }

  /// This rank hears only rank 0, which hears all ranks.
  void look_for_absence(const AbsenceQuestion& question) override {
    if (!roster_.missing(quiet_s()).empty())
      answer({question.number, Absence{{0}, "missing: " + roster_.describe_missing({0})}});
    else if (wire_.open())
      wire_.send(make_question(question));
    else
      answer({question.number, std::nullopt});
  }

  void report_failure(const End& end) override {
    if (over_) return;
    insist();
    if (!wire_.open()) return;
    wire_.send(make_end(failure_mark, end.status, end.why));
    left_ = true;
    Wire* const only[] = {&wire_};
    for (const double until_s = now_s() + patience_s; wire_.open() && now_s() < until_s;
         wait_for(only)) {
      wire_.flush();
      if (const auto answer = wire_.receive(); answer && answer->front() == end_mark) return;
    }
  }

  /// Keeps connecting for up to a second, for a message that cannot wait for the next turn.
  void insist() {
    if (wire_.open()) return;
    beat();
    for (const double until_s = now_s() + 1; attempt_ && now_s() < until_s; continue_connecting()) {
      std::vector<pollfd> polled;
      attempt_->add_to(polled);
      poll(polled.data(), polled.size(), 50);
    }
  }

  void say_goodbye() override {
    if (wire_.open()) wire_.send(std::string(1, goodbye_mark));
  }

  /// When rank 0 is missing, one rank of each node reports it: nodes may be cut off from each
  /// other.
  bool reports() const {
    const auto first = std::find(hosts_.begin() + 1, hosts_.end(), hosts_[index(rank_)]);
    return first - hosts_.begin() == rank_;
  }

  ListenerCard card_;
  std::optional<ConnectAttempt> attempt_;  ///< the current one
  std::optional<NodeProbe> probe_;         ///< on the first rank of a node
  Wire wire_;
  double heard_s_ = 0;
  bool left_ = false;  ///< goodbye was said, by rank 0 or to it
};

}  // namespace
}  // namespace lockstep::comm

namespace lockstep::liveness {

std::unique_ptr<Heartbeat> start_heartbeat(const HeartbeatSpec& spec, comm::Control& control) {
  if (control.world() == 1) return nullptr;
  const std::vector<std::string> hosts = control.gather(spec.host, "start of the heartbeat");
  comm::ListenerCard card;
  comm::Listener listener;
  if (control.rank() == 0) {
    const std::array<std::uint16_t, 1> any{0};
    listener = comm::listen_on(any);
    card = {comm::new_nonce(), listener.port, comm::own_addresses()};
  }
  card = comm::broadcast_record(control, card, "start of the heartbeat");
  comm::ProbePlaces places = comm::exchange_probe_places(hosts, card.secret, control);
  if (control.rank() == 0)
    return std::make_unique<comm::HeartbeatServer>(
        spec, hosts, comm::HandshakeServer(card.secret, std::move(listener)));
  if (hosts[comm::index(control.rank())] == hosts[0])
    card.addresses.insert(card.addresses.begin(), "127.0.0.1");
  std::optional<comm::NodeProbe> probe;
  if (places.listener.socket)
    probe.emplace(control.rank(), control.world(),
                  comm::HandshakeServer(card.secret, std::move(places.listener)),
                  std::move(places.cards));
  return std::make_unique<comm::HeartbeatClient>(spec, control.rank(), hosts, std::move(card),
                                                 std::move(probe));
}

}  // namespace lockstep::liveness
