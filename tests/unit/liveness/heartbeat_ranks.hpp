#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/record.hpp"
#include "lockstep/liveness/heartbeat.hpp"
#include "ports/tcp/heartbeat/heartbeat_wire.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "tests/support/harness/pause.hpp"

namespace lockstep::test {

/// The part of a Control that a heartbeat's start needs: all ranks know rank 0's text.
class Script final : public comm::Control {
 public:
  Script(int rank, int world, std::string& word) : rank_(rank), world_(world), word_(word) {}
  int rank() const override { return rank_; }
  int world() const override { return world_; }

 private:
  std::string meet(const std::string& mine, std::string_view, const Combine& combine) override {
    if (mine.empty()) return word_;  // of a broadcast
    const std::string result = combine(Parts(static_cast<std::size_t>(world_), mine));
    if (rank_ == 0 && result == mine) word_ = mine;
    return result;
  }
  int rank_, world_;
  std::string& word_;
};

/// A rank's wire to rank 0, or a closed one when it is not let in.
inline tcp::Wire connect(const tcp::ListenerCard& card, int rank, int world) {
  tcp::ConnectAttempt attempt(card, tcp::heartbeat_purpose, rank, world);
  for (; !attempt.failed(); pause_ms(1))
    if (auto wire = attempt.poll()) return std::move(*wire);
  return {};
}

/// Ranks in one process, all or the first `started`; an end is only noted.
struct Ranks {
  Ranks(int world, double timeout_s) : Ranks(world, timeout_s, world) {}
  Ranks(int world, double timeout_s, int started) : ended(static_cast<std::size_t>(world)) {
    for (int rank = 0; rank < started; ++rank) {
      Script control(rank, world, word);
      auto& end = ended[static_cast<std::size_t>(rank)];
      heartbeats.push_back(liveness::start_heartbeat(
          {"host", timeout_s, 120, 4, [&end](int status) { end = status; }, activity}, control));
    }
  }
  std::string word;
  comm::ActivityTracker activity;  ///< of all of them
  std::vector<std::atomic<int>> ended;
  std::vector<std::unique_ptr<liveness::Heartbeat>> heartbeats;
};

/// Where rank 0 of these ranks listens, on this machine.
inline tcp::ListenerCard card_of(const std::string& word) {
  auto card = comm::read_record<tcp::ListenerCard>(word);
  card.addresses = {"127.0.0.1"};
  return card;
}

}  // namespace lockstep::test
