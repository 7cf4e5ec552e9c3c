#include <fmt/core.h>

#include <filesystem>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/worlds/meeting.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"
#include "ports/tcp/meeting/meet.hpp"

namespace lockstep::tcp {
namespace {

std::string title_of(int rank, const Peer& peer) {
  return fmt::format("rank {} on {}", rank, peer.node);
}

/// After the deadline. The heartbeats mostly know which ranks keep the others waiting; else it is
/// those that did not come to this meeting. Nothing where one comes nearer: the wait begins again.
comm::WaitFinding describe_late(std::string_view phase, const std::vector<int>& not_here,
                                const comm::MeetingSpec& spec) {
  const auto absence = spec.find_absence ? spec.find_absence(spec.deadline_s) : std::nullopt;
  if (absence && absence->nearer) return {};
  const bool known = absence && !absence->ranks.empty();
  const std::string late =
      fmt::format("{}: {} did not arrive within {:g} s", phase,
                  comm::rank_list(known ? absence->ranks : not_here), spec.deadline_s);
  return absence ? absence->finding(late) : comm::WaitFinding{late};
}

/// The connection between this rank and another one has ended. The heartbeats, which connect again,
/// know whether its process has.
comm::WaitFinding describe_gone(std::string_view phase, const std::string& title,
                                const comm::MeetingSpec& spec) {
  if (spec.rank_gone) spec.rank_gone();
  const auto absence = spec.find_absence ? spec.find_absence(0) : std::nullopt;
  if (!absence) return {fmt::format("{}: {} has gone", phase, title), Ending::lost_rank};
  return {fmt::format("{}: the connection to {} has ended; {}", phase, title, absence->text),
          absence->ending};
}

/// A larger one would end the connection.
void check_size(std::size_t bytes, std::string_view phase) {
  if (bytes > message_limit)
    throw Error(fmt::format("{}: a message of {} MiB between ranks is larger than {} MiB", phase,
                            bytes >> 20, message_limit >> 20));
}

/// Rank 0 has a wire to each other rank and combines the parts. The others have one wire, to rank
/// 0.
class Rank0Control final : public comm::MeetingControl {
 public:
  Rank0Control(std::vector<Peer> peers, comm::MeetingSpec spec)
      : MeetingControl(spec.activity), peers_(std::move(peers)), spec_(std::move(spec)) {
    for (std::size_t rank = 1; rank < peers_.size(); ++rank) wires_.push_back(&peers_[rank].wire);
  }
  int rank() const override { return 0; }
  int world() const override { return static_cast<int>(peers_.size()); }

 private:
  std::string meet(const std::string& mine, std::string_view phase,
                   const Combine& combine) override {
    std::string result = combine(collect(mine, phase));
    check_size(result.size() + 1, phase);
    answer(agreed + result);
    Countdown left(spec_.deadline_s);
    for (std::vector<int> deaf; !(deaf = unsent()).empty(); wait_for(wires_)) {
      if (left.over())
        throw Error(fmt::format("{}: {} stopped listening", phase, comm::rank_list(deaf)),
                    Ending::stuck);
      for (Wire* wire : wires_) wire->flush();
    }
    return result;
  }

  /// The parts of all ranks, by rank.
  Parts collect(const std::string& mine, std::string_view phase) {
    Parts parts(peers_.size());
    parts[0] = mine;
    std::vector<int> here{0};
    std::vector<bool> came(peers_.size());
    came[0] = true;
    for (Countdown left(spec_.deadline_s);; wait_for(wires_)) {
      for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
        if (came[rank]) continue;
        const int number = static_cast<int>(rank);
        auto message = peers_[rank].wire.receive();
        if (message == confirmation) message = peers_[rank].wire.receive();
        if (!message) {
          if (!peers_[rank].wire.open())
            refuse(describe_gone(phase, title_of(number, peers_[rank]), spec_));
          continue;
        }
        const std::size_t end = message->find('\0');
        const std::string theirs = message->substr(0, end);
        if (theirs != phase)
          refuse({fmt::format("{} is in the phase '{}' while rank 0 is in '{}'",
                              title_of(number, peers_[rank]), theirs, phase),
                  Ending::unknown});
        parts[rank] = message->substr(end + 1);
        came[rank] = true;
        here.push_back(number);
      }
      if (here.size() == peers_.size()) return parts;
      check_not_cancelled(spec_);
      if (!left.over()) continue;
      const auto late = describe_late(phase, comm::all_but(here, world()), spec_);
      if (!late.text.empty()) refuse(late);
      left = Countdown(spec_.deadline_s);
    }
  }

  void answer(const std::string& text) {
    for (Wire* wire : wires_)
      if (wire->open()) wire->send(text);
  }

  [[noreturn]] void refuse(const comm::WaitFinding& why) {
    answer(refused + why.text);
    throw comm::MissingRanks(why);
  }

  /// The ranks that have not taken all that was sent to them.
  std::vector<int> unsent() const {
    std::vector<int> ranks;
    for (std::size_t rank = 1; rank < peers_.size(); ++rank)
      if (peers_[rank].wire.unsent()) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }

  std::vector<Peer> peers_;
  std::vector<Wire*> wires_;
  comm::MeetingSpec spec_;
};

class OtherRankControl final : public comm::MeetingControl {
 public:
  OtherRankControl(Peer host, int rank, int world, comm::MeetingSpec spec,
                   std::filesystem::path file)
      : MeetingControl(spec.activity),
        host_(std::move(host)),
        rank_(rank),
        world_(world),
        spec_(std::move(spec)),
        file_(std::move(file)) {}
  int rank() const override { return rank_; }
  int world() const override { return world_; }

 private:
  std::string meet(const std::string& mine, std::string_view phase, const Combine&) override {
    check_size(phase.size() + 1 + mine.size(), phase);
    host_.wire.send(std::string(phase) + '\0' + mine);
    Wire* const only[] = {&host_.wire};
    // Rank 0 has its own deadline, and if it is alive it knows better which ranks are missing.
    const double patience_s = 1.1 * spec_.deadline_s + 1;
    for (Countdown left(patience_s);; wait_for(only)) {
      host_.wire.flush();
      if (const auto answer = host_.wire.receive(); answer && !answer->empty()) {
        if (answer->front() == refused) throw comm::MissingRanks(answer->substr(1), true);
        return answer->substr(1);
      }
      if (!host_.wire.open()) {
        cluster::remove_card(file_, host_.secret);  // rank 0 may have been killed
        throw comm::MissingRanks(describe_gone(phase, title_of(0, host_), spec_));
      }
      check_not_cancelled(spec_);
      if (!left.over()) continue;
      const auto late = describe_late(phase, {0}, spec_);
      if (!late.text.empty()) throw comm::MissingRanks(late);
      left = Countdown(patience_s);
    }
  }

  Peer host_;
  int rank_, world_;
  comm::MeetingSpec spec_;
  std::filesystem::path file_;  ///< with the meeting's secret
};

}  // namespace

}  // namespace lockstep::tcp

namespace lockstep::comm {

std::unique_ptr<Control> make_tcp_control(const cluster::MeetingPlace& place,
                                          const cluster::RankInfo& self, const MeetingSpec& spec) {
  if (self.rank == 0)
    return std::make_unique<tcp::Rank0Control>(tcp::accept_all_ranks(place, self, spec), spec);
  // Rank 0 names the missing ranks when its deadline has passed; the others give it that time.
  MeetingSpec longer = spec;
  longer.deadline_s = 1.1 * spec.deadline_s + 1;
  return std::make_unique<tcp::OtherRankControl>(tcp::join_rank_0(place, self, longer), self.rank,
                                                 self.world, spec, place.file);
}

}  // namespace lockstep::comm
