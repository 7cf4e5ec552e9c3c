#include "ports/tcp/heartbeat/heartbeat_server.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/nodes.hpp"

namespace lockstep::tcp {
namespace {

// After it, rank 0 asks for probes again: reports may have been lost with a connection.
constexpr double longest_round_s = 15;

constexpr std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

HeartbeatServer::HeartbeatServer(liveness::HeartbeatSpec spec, std::vector<KnownRank> ranks,
                                 HandshakeServer door, std::optional<NodeProbe> probe)
    : HeartbeatThread(std::move(spec), 0, std::move(ranks)),
      door_(std::move(door)),
      probe_(std::move(probe)),
      ready_(::epoll_create1(EPOLL_CLOEXEC)),
      peers_(ranks_.size()),
      links_(hosts_of(ranks_)),
      began_s_(now_s()) {
  if (!ready_)
    throw Error(fmt::format("rank 0 on {} cannot open what its heartbeat needs: {}", place(0).host,
                            std::strerror(errno)));
  start();
}

void HeartbeatServer::add_to(std::vector<pollfd>& polled) const {
  door_.add_to(polled);
  if (probe_) probe_->add_to(polled);
  polled.push_back({ready_.get(), POLLIN, 0});
}

/// Full packets of a thousand nodes would not fit into the socket's memory if they were taken out
/// of it only now and then, and the network would be blamed.
double HeartbeatServer::shortest_turn_s() const {
  constexpr double usual_s = 0.05, while_packets_come_s = 0.005;
  return probe_ && probe_->sends() ? while_packets_come_s : usual_s;
}

double HeartbeatServer::longest_turn_s() const {
  if (!closed_.empty()) return closed_turn_s;
  return probe_ && probe_->sends() ? NodeProbe::turn_s : interval_s_;
}

void HeartbeatServer::listen() {
  door_.admit([this](const Hello& hello) { return reason_against(hello); },
              [this](const Hello& hello, Wire wire) { let_in(hello, std::move(wire)); });
  std::array<epoll_event, 256> events;
  for (int count = static_cast<int>(events.size()); count == static_cast<int>(events.size());) {
    count = ::epoll_wait(ready_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const int rank = events[index(i)].data.fd;
      hear(rank, peers_[index(rank)]);
    }
  }
  look_at_closed();
  if (const auto report = probe_ ? probe_->poll() : std::nullopt) hear_report(0, *report);
  if (!over_) judge();
}

std::string HeartbeatServer::reason_against(const Hello& hello) const {
  const bool right = hello.job == heartbeat_purpose && hello.world == world() && hello.rank > 0 &&
                     hello.rank < world();
  return right ? "" : "not a rank of this world's heartbeat";
}

/// A rank may come again when its connection has stalled.
void HeartbeatServer::let_in(const Hello& hello, Wire wire) {
  Peer& peer = peers_[index(hello.rank)];
  peer.wire = std::move(wire);
  peer.wire.set_limit(heartbeat_message_limit);
  peer.met = true;
  peer.heard_s = 0;  // the peer may drop this connection if the answer comes too late
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = hello.rank;
  // Where the system refuses, this wire closes and the peer comes again.
  if (::epoll_ctl(ready_.get(), EPOLL_CTL_ADD, peer.wire.handle(), &event) != 0) peer.wire.close();
}

/// Reads once; what is left is ready in the next turn, too.
void HeartbeatServer::hear(int rank, Peer& peer) {
  for (auto message = peer.wire.receive(); message; message = peer.wire.take()) {
    peer.heard_s = now_s();
    attempt([&] { take_message(rank, peer, *message); });
  }
  note_end(rank, peer);
}

void HeartbeatServer::note_end(int rank, const Peer& peer) {
  const bool closed = !peer.left && !peer.wire.open();
  const bool ended = closed && ended_with_process(rank, peer.heard_s);
  if (peer.left)
    roster_.left(rank);
  else if (ended)
    roster_.broke(rank);
  if (closed && !ended && shares_node(rank))
    closed_.insert(rank);
  else
    closed_.erase(rank);
}

void HeartbeatServer::look_at_closed() {
  for (const int rank : std::vector<int>(closed_.begin(), closed_.end()))
    note_end(rank, peers_[index(rank)]);
}

void HeartbeatServer::take_message(int rank, Peer& peer, const std::string& message) {
  switch (mark_of(message)) {
    case beat_mark:
      peer.looked_for = false;
      return hear_beat(rank, unmarked<Beat>(message));
    case question_mark:
      return peer.wire.send(make_finding(find(unmarked<AbsenceQuestion>(message))));
    case report_mark:
      return hear_report(rank, unmarked<ProbeReport>(message));
    case sight_mark: {
      const Sight sight = unmarked<Sight>(message);
      return roster_.seen(sight.rank, sight.trouble);
    }
    case goodbye_mark:
      peer.left = true;
      return;
    case failure_mark:
      peer.left = true;
      if (!over_) other_failed(rank, unmarked<liveness::End>(message));
  }
}

void HeartbeatServer::hear_beat(int rank, const Beat& beat) {
  if (beat.starved_s > 0) {
    roster_.starved(rank, beat.starved_s);
    warn_of_starved(rank, beat.starved_s);
  }
  roster_.heard(rank, beat.activity);
}

void HeartbeatServer::hear_report(int rank, const ProbeReport& report) {
  if (report.round == round_) links_.heard(rank, report.links);
}

void HeartbeatServer::beat(double starved_s) {
  const comm::Activity mine = spec_.activity.now();
  hear_beat(0, {mine, starved_s});
  to_tell_s_ = std::max(to_tell_s_, starved_s);
  if (now_s() >= tell_s_) {
    tell_s_ = now_s() + std::clamp(spec_.timeout_s / 20, interval_s_, 1.0);
    tell_all(make_beat(mine, std::exchange(to_tell_s_, 0)));
  }
  look_for_silent_ranks();
  warn_of_unheard();
}

/// A process that does not beat may be stopped, or write a core: its neighbours can see that.
void HeartbeatServer::look_for_silent_ranks() {
  for (const int rank : roster_.missing(spec_.timeout_s / 2)) {
    if (std::exchange(peers_[index(rank)].looked_for, true)) continue;
    const std::optional<int> neighbour = roster_.neighbour(rank, quiet_s());
    if (neighbour == 0)
      roster_.seen(rank, look_at(rank));
    else if (neighbour && peers_[index(*neighbour)].wire.open())
      peers_[index(*neighbour)].wire.send(marked(look_mark, rank));
  }
}

void HeartbeatServer::warn_of_starved(int rank, double seconds) {
  if (seconds < std::max(spec_.timeout_s / 4, 2.0)) return;
  if (!warned_of_.insert(place(rank).host).second) return;
  log::warn(
      fmt::format("{} is overloaded: the heartbeat of rank {} was not scheduled for {:.0f} s. "
                  "What else runs there?",
                  place(rank).host, rank, seconds));
}

void HeartbeatServer::warn_of_unheard() {
  if (now_s() - began_s_ < spec_.timeout_s || std::exchange(warned_, true)) return;
  const std::vector<int> unheard = roster_.never_heard();
  if (unheard.empty()) return;
  log::warn(fmt::format(
      "no heartbeat of {} (first: {}) has reached rank 0 on {} in {:.0f} s: is "
      "TCP between the nodes blocked? Without it the loss of such a rank is noticed "
      "late, after comm.deadline-s",
      comm::rank_list(unheard), place(unheard.front()).host, place(0).host, spec_.timeout_s));
}

void HeartbeatServer::say_goodbye() { tell_all(std::string(1, goodbye_mark)); }

void HeartbeatServer::tell_all(const std::string& message) {
  for (int rank = 1; rank < world(); ++rank) {
    Peer& peer = peers_[index(rank)];
    if (!peer.met) continue;
    if (peer.wire.open()) peer.wire.send(message);
    note_end(rank, peer);  // the connection may be found reset only now, or its process ended
  }
}

void HeartbeatServer::judge() {
  if (const std::vector<int> ranks = lost(); !ranks.empty()) return end_for(ranks);
  judge_links();
  if (over_) return;
  // The ranks that wait have the same deadline, and need a little time to report.
  const double patient_s = 1.1 * spec_.deadline_s + 5;
  if (!roster_.stuck(patient_s)) return;
  const std::vector<int> late = roster_.late(patient_s);
  const std::string what = late.empty()
                               ? fmt::format("no rank made progress for {:.0f} s, in {}", patient_s,
                                             describe(spec_.activity.now()))
                               : fmt::format("the others wait for {}", roster_.describe_late(late));
  end_all(what + "; ending the job", {.reason = what, .ending = Ending::stuck});
}

void HeartbeatServer::end_for(const std::vector<int>& ranks) {
  const std::string what = fmt::format("{} of {} ranks missing: {}", ranks.size(), world(),
                                       roster_.describe_missing(ranks));
  end_all(fmt::format("{}; rank 0 is in {}; ending the job", what, describe(spec_.activity.now())),
          {.reason = what, .ending = Ending::lost_rank, .missing = ranks});
}

/// All ranks answer, all wait, and none has moved for the timeout: does the network between the
/// nodes work? Asks them, again after each timeout.
void HeartbeatServer::judge_links() {
  if (!probe_) return;
  if (!roster_.all_wait(spec_.timeout_s)) {
    asking_ = false;
    return;
  }
  if (!asking_ || now_s() - asked_s_ > std::max(spec_.timeout_s, longest_round_s)) ask_for_links();
  if (!links_.complete()) return;
  if (const auto links = links_.broken(); !links.empty()) end_for(links);
}

void HeartbeatServer::ask_for_links() {
  asking_ = true;
  asked_s_ = now_s();
  ++round_;
  links_.begin();
  probe_->begin(round_);
  for (const int rank : links_.first_ranks())
    if (Wire& wire = peers_[index(rank)].wire; wire.open()) wire.send(marked(probe_mark, round_));
}

void HeartbeatServer::end_for(const std::vector<liveness::Links::Link>& links) {
  const std::string what = links_.describe(links);
  const std::vector<std::string> without = links_.nodes_to_leave_out(links);
  end_all(fmt::format("{}; all ranks wait, rank 0 in {}; ending the job. A start without {} does "
                      "not need it",
                      what, describe(spec_.activity.now()), join(without, ", ")),
          {.reason = what, .ending = Ending::network, .leave_out = without});
}

void HeartbeatServer::end_all(const std::string& text, const liveness::Cause& cause) {
  report(text, cause);
  attempt([&] { tell_all(make_end(end_mark, {spec_.lost_status, cause.reason, cause.ending})); });
  end_process(spec_.lost_status, 0);
}

/// That rank has printed its error. Most launchers now end the others; otherwise this does.
void HeartbeatServer::other_failed(int rank, const liveness::End& end) {
  over_ = true;
  report(lateness(),
         {fmt::format("rank {} on {}: {}", rank, place(rank).host, end.why), end.ending});
  attempt([&] { tell_all(make_end(end_mark, end)); });
  end_process(end.status, patience_s);
}

void HeartbeatServer::report_failure(const liveness::End& end) {
  if (over_) return;
  report(lateness(), {fmt::format("rank 0 on {}: {}", place(0).host, end.why), end.ending});
  tell_all(make_end(end_mark, end));
}

AbsenceFinding HeartbeatServer::find(const AbsenceQuestion& question) const {
  const double unmoved_s = std::max(question.waited_s / 2, 2 * interval_s_);
  return {question.number, roster_.absence(quiet_s(), unmoved_s)};
}

std::string HeartbeatServer::lateness() const {
  const std::vector<int> late = roster_.late(spec_.deadline_s / 2);
  return late.empty() ? "" : fmt::format("the others waited for {}", roster_.describe_late(late));
}

}  // namespace lockstep::tcp
