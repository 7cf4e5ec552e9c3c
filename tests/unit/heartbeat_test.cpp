#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/comm/heartbeat.hpp"
#include "tcp/heartbeat_wire.hpp"

using namespace lockstep;
using comm::Activity;

namespace {

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

bool becomes(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) pause_ms(10);
  return condition();
}

/// Plays the part of a Control that a heartbeat's start needs: everybody knows rank 0's words.
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
comm::Wire knock(const comm::HeartbeatCard& card, int rank, int world) {
  for (int tries = 0; tries < 3; ++tries) {  // one gives up after seconds, however busy rank 0 is
    comm::Knock knock(card, rank, world);
    for (; !knock.in_vain(); pause_ms(1))
      if (auto wire = knock.go_on()) return std::move(*wire);
  }
  return {};
}

/// Ranks in one process, all or the first `started`; an end is only noted.
struct Ranks {
  Ranks(int world, double timeout_s) : Ranks(world, timeout_s, world) {}
  Ranks(int world, double timeout_s, int started) : ended(static_cast<std::size_t>(world)) {
    for (int rank = 0; rank < started; ++rank) {
      Script control(rank, world, word);
      auto& end = ended[static_cast<std::size_t>(rank)];
      hearts.push_back(comm::start_heartbeat(
          {"host", timeout_s, 120, 4, [&end](int status) { end = status; }}, control));
    }
  }
  std::string word;
  std::vector<std::atomic<int>> ended;
  std::vector<std::unique_ptr<comm::Heartbeat>> hearts;
};

}  // namespace

TEST_CASE("a beat says where its sender stands", "[heartbeat]") {
  const Activity sent{12, comm::Phase::reduction, 3, 1 << 20, true, 99};
  const auto read = comm::read_beat(comm::make_beat(sent));
  REQUIRE(read);
  CHECK(comm::describe(*read) == "step 12, reduction of bucket 3 (1.0 MB)");
  CHECK(read->waiting);
  CHECK(read->movements == 99);
  CHECK_FALSE(comm::read_beat("g"));
  CHECK_FALSE(comm::read_beat("b 1 2"));
}

TEST_CASE("a rank that is alone has no heartbeat", "[heartbeat]") {
  Ranks ranks(1, 20);
  CHECK(ranks.hearts[0] == nullptr);
}

TEST_CASE("ranks that live, and then say goodbye in any order, end nobody", "[heartbeat][slow]") {
  for (const bool rank_0_first : {true, false}) {
    Ranks ranks(3, 4);
    pause_ms(rank_0_first ? 5000 : 500);
    if (rank_0_first) ranks.hearts[0].reset();
    ranks.hearts[2].reset();
    ranks.hearts[1].reset();
    ranks.hearts[0].reset();
    for (const auto& status : ranks.ended) CHECK(status == 0);
  }
}

TEST_CASE("a connection that ends without a goodbye ends all ranks", "[heartbeat][slow]") {
  Ranks ranks(3, 20, 2);
  {
    comm::HeartbeatCard card = comm::read_heartbeat_card(ranks.word);
    card.addresses = {"127.0.0.1"};
    comm::Wire third = knock(card, 2, 3);
    REQUIRE(third.open());
    for (int i = 0; i < 100; ++i) {
      third.send(comm::make_beat({5, comm::Phase::forward, 0, 0, false, 1}));
      pause_ms(10);
      while (third.receive()) continue;  // what is left unread would reset the connection
    }
  }
  for (const std::size_t rank : {0, 1}) CHECK(becomes([&] { return ranks.ended[rank] == 4; }));
}

TEST_CASE("of several addresses the one is taken behind which rank 0 is", "[heartbeat]") {
  Ranks ranks(2, 20, 1);
  comm::HeartbeatCard card = comm::read_heartbeat_card(ranks.word);
  card.addresses = {"192.0.2.1", "no address", "127.0.0.1"};  // the first is nobody's
  CHECK(knock(card, 1, 2).open());
  card.addresses = {"no address"};
  CHECK_FALSE(knock(card, 1, 2).open());
  ranks.hearts.clear();
}

TEST_CASE("a stranger without the secret is not let in", "[heartbeat]") {
  Ranks ranks(2, 20);
  comm::HeartbeatCard card = comm::read_heartbeat_card(ranks.word);
  card.addresses = {"127.0.0.1"};
  card.secret[0] ^= 1;
  CHECK_FALSE(knock(card, 1, 2).open());
  CHECK(ranks.ended[0] == 0);
}

TEST_CASE("a rank that fails takes the others along with its status", "[heartbeat][slow]") {
  // Only ranks that have met can be told; on a busy machine that may take a while.
  const auto takes_along = [](std::size_t failing, int meeting_ms) {
    Ranks ranks(3, 20);
    pause_ms(meeting_ms);
    ranks.hearts[failing]->fail("the disk is full", 2);
    if (failing == 0) ranks.hearts[0].reset();
    bool all = ranks.ended[failing] == 0;
    for (std::size_t rank = 0; rank < 3; ++rank)
      if (rank != failing) all = becomes([&] { return ranks.ended[rank] == 2; }) && all;
    return all;
  };
  for (const std::size_t failing : {0, 2})
    CHECK((takes_along(failing, 300) || takes_along(failing, 5000)));
}
