#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/comm/record.hpp"
#include "lockstep/liveness/heartbeat.hpp"
#include "ports/tcp/connect_attempt.hpp"
#include "ports/tcp/heartbeat/heartbeat_wire.hpp"

using namespace lockstep;
using comm::Activity;

namespace {

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

bool becomes(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) pause_ms(10);
  return condition();
}

/// The part of a Control that a heartbeat's start needs: all ranks know rank 0's text.
class Script final : public comm::Control {
 public:
  Script(int rank, int world, std::string& word) : rank_(rank), world_(world), word_(word) {}
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  void barrier(std::string_view) override {}
  std::vector<std::string> gather(const std::string& mine, std::string_view) override {
    return std::vector<std::string>(static_cast<std::size_t>(world_), mine);
  }
  std::string broadcast(const std::string& from_root, std::string_view) override {
    if (rank_ == 0) word_ = from_root;
    return word_;
  }
  std::vector<double> sum(const std::vector<double>& values, std::string_view) override {
    return values;
  }
  std::vector<double> max(const std::vector<double>& values, std::string_view) override {
    return values;
  }

 private:
  int rank_, world_;
  std::string& word_;
};

/// A rank's wire to rank 0, or a closed one when it is not let in.
comm::Wire connect(const comm::ListenerCard& card, int rank, int world) {
  comm::ConnectAttempt attempt(card, comm::heartbeat_purpose, rank, world);
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
          {"host", timeout_s, 120, 4, [&end](int status) { end = status; }}, control));
    }
  }
  std::string word;
  std::vector<std::atomic<int>> ended;
  std::vector<std::unique_ptr<liveness::Heartbeat>> heartbeats;
};

}  // namespace

TEST_CASE("a beat says what its sender is doing", "[heartbeat]") {
  const Activity sent{12, comm::Phase::reduction, 3, 1 << 20, true, 99, true};
  const auto read = comm::read_beat(comm::make_beat(sent));
  REQUIRE(read);
  CHECK(comm::describe(*read) == "step 12, reduction of bucket 3 (1.0 MB)");
  CHECK(read->waiting);
  CHECK(read->movements == 99);
  CHECK(read->on_files);
  CHECK_FALSE(comm::read_beat("g"));
  CHECK_FALSE(comm::read_beat("b 1 2"));
}

TEST_CASE("a rank that is alone has no heartbeat", "[heartbeat]") {
  Ranks ranks(1, 20);
  CHECK(ranks.heartbeats[0] == nullptr);
}

TEST_CASE("ranks that live, and then say goodbye in any order, end no rank", "[heartbeat][slow]") {
  for (const bool rank_0_first : {true, false}) {
    Ranks ranks(3, 4);
    pause_ms(rank_0_first ? 5000 : 500);
    if (rank_0_first) ranks.heartbeats[0].reset();
    ranks.heartbeats[2].reset();
    ranks.heartbeats[1].reset();
    ranks.heartbeats[0].reset();
    for (const auto& status : ranks.ended) CHECK(status == 0);
  }
}

TEST_CASE("a connection that ends without a goodbye ends all ranks", "[heartbeat][slow]") {
  Ranks ranks(3, 20, 2);
  {
    comm::ListenerCard card = comm::read_record<comm::ListenerCard>(ranks.word);
    card.addresses = {"127.0.0.1"};
    comm::Wire third = connect(card, 2, 3);
    REQUIRE(third.open());
    for (int i = 0; i < 100; ++i) {
      third.send(comm::make_beat({5, comm::Phase::forward, 0, 0, false, 1}));
      pause_ms(10);
      while (third.receive()) continue;  // what is left unread would reset the connection
    }
  }
  for (const std::size_t rank : {0, 1}) CHECK(becomes([&] { return ranks.ended[rank] == 4; }));
}

TEST_CASE("of several addresses, the one where rank 0 is gets used", "[heartbeat]") {
  Ranks ranks(2, 20, 1);
  comm::ListenerCard card = comm::read_record<comm::ListenerCard>(ranks.word);
  card.addresses = {"192.0.2.1", "no address", "127.0.0.1"};  // the first has no owner
  CHECK(connect(card, 1, 2).open());
  card.addresses = {"no address"};
  CHECK_FALSE(connect(card, 1, 2).open());
  ranks.heartbeats.clear();
}

TEST_CASE("a stranger without the secret is not let in", "[heartbeat]") {
  Ranks ranks(2, 20);
  comm::ListenerCard card = comm::read_record<comm::ListenerCard>(ranks.word);
  card.addresses = {"127.0.0.1"};
  card.secret[0] ^= 1;
  CHECK_FALSE(connect(card, 1, 2).open());
  CHECK(ranks.ended[0] == 0);
}

TEST_CASE("a rank that fails takes the others along with its status", "[heartbeat][slow]") {
  // Only ranks that have met can be told; on a busy machine that may take a while.
  const auto takes_along = [](std::size_t failing, int meeting_ms) {
    Ranks ranks(3, 20);
    pause_ms(meeting_ms);
    ranks.heartbeats[failing]->fail("the disk is full", 2);
    if (failing == 0) ranks.heartbeats[0].reset();
    bool all = ranks.ended[failing] == 0;
    for (std::size_t rank = 0; rank < 3; ++rank)
      if (rank != failing) all = becomes([&] { return ranks.ended[rank] == 2; }) && all;
    return all;
  };
  for (const std::size_t failing : {0, 2})
    CHECK((takes_along(failing, 300) || takes_along(failing, 5000)));
}

namespace {

/// A rank made by the test, which sends what it is told to send, until the end.
class TestRank {
 public:
  TestRank(const std::string& word, int rank, int world, Activity says)
      : wire_(connect(card_of(word), rank, world)), says_(says) {
    thread_ = std::thread([this] {
      for (; !end_; pause_ms(20)) {
        wire_.send(comm::make_beat(says_));
        while (wire_.receive()) continue;
      }
      wire_.send(std::string(1, comm::goodbye_mark));
      wire_.flush();
    });
  }
  ~TestRank() {
    end_ = true;
    thread_.join();
  }

 private:
  static comm::ListenerCard card_of(const std::string& word) {
    auto card = comm::read_record<comm::ListenerCard>(word);
    card.addresses = {"127.0.0.1"};
    return card;
  }
  comm::Wire wire_;
  const Activity says_;
  std::atomic<bool> end_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("any rank, on any of its threads, learns which ranks keep it waiting", "[heartbeat]") {
  Ranks ranks(3, 60, 2);
  const TestRank third(ranks.word, 2, 3, {0, comm::Phase::data, 0, 0, false, 1});
  const comm::activity::Waiting waiting;  // of the two ranks of this process
  const auto names_the_third = [&](std::size_t rank) {
    const auto absence = ranks.heartbeats[rank]->find_absence(4);
    return absence && absence->ranks == std::vector<int>{2} &&
           absence->text.starts_with("the others wait for rank 2 on host (in data for ");
  };
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (const std::size_t rank : {0, 1, 0, 1})
    threads.emplace_back([&, rank] {
      if (becomes([&] { return names_the_third(rank); })) ++right;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 4);
}

TEST_CASE("no rank is named as missing while one was never heard from", "[heartbeat]") {
  Ranks ranks(3, 60, 2);
  pause_ms(1000);
  CHECK_FALSE(ranks.heartbeats[0]->find_absence(120));
  CHECK_FALSE(ranks.heartbeats[1]->find_absence(120));
}
