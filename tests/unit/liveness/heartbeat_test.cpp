#include <catch2/catch.hpp>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/liveness/heartbeat_ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;
using comm::Activity;

TEST_CASE("a beat says what its sender is doing", "[heartbeat]") {
  const Activity sent{12, comm::Phase::reduction, 3, 1 << 20, true, 99, true};
  const auto [read, starved_s] = tcp::unmarked<tcp::Beat>(tcp::make_beat(sent, 12.5));
  CHECK(comm::describe(read) == "step 12, reduction of bucket 3 (1.0 MB)");
  CHECK(read.waiting);
  CHECK(read.movements == 99);
  CHECK(read.on_files);
  CHECK(starved_s == 12.5);
  CHECK_THROWS(tcp::unmarked<tcp::Beat>("b 1 2"));
  CHECK_THROWS(tcp::unmarked<tcp::Beat>(""));
}

TEST_CASE("an answer that would be too long for a connection is cut", "[heartbeat]") {
  const std::vector<int> ranks{3, 4};
  const std::string message =
      tcp::make_finding({7, comm::Absence{ranks, std::string(1 << 17, 'x'), Ending::network}});
  CHECK(message.size() <= tcp::heartbeat_message_limit);
  const tcp::AbsenceFinding finding = tcp::unmarked<tcp::AbsenceFinding>(message);
  CHECK(finding.number == 7);
  REQUIRE(finding.absence);
  CHECK(finding.absence->ranks == ranks);
  CHECK(finding.absence->ending == Ending::network);
}

TEST_CASE("a rank that is alone has no heartbeat", "[heartbeat]") {
  Ranks ranks(1, 20);
  CHECK(ranks.heartbeats[0] == nullptr);
}

TEST_CASE("ranks that live, and then say goodbye in any order, end no rank",
          "[heartbeat][slow][waits]") {
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

TEST_CASE("a connection that ends without a goodbye ends all ranks", "[heartbeat][slow][waits]") {
  Ranks ranks(3, 20, 2);
  {
    tcp::Wire third = connect(card_of(ranks.word), 2, 3);
    REQUIRE(third.open());
    for (int i = 0; i < 100; ++i) {
      third.send(tcp::make_beat({5, comm::Phase::forward, 0, 0, false, 1}));
      pause_ms(10);
      while (third.receive()) continue;  // what is left unread would reset the connection
    }
  }
  for (const std::size_t rank : {0, 1}) CHECK(becomes([&] { return ranks.ended[rank] == 4; }));
}

TEST_CASE("of several addresses, the one where rank 0 is gets used", "[heartbeat]") {
  Ranks ranks(2, 20, 1);
  tcp::ListenerCard card = comm::read_record<tcp::ListenerCard>(ranks.word);
  card.addresses = {"192.0.2.1", "no address", "127.0.0.1"};  // the first has no owner
  CHECK(connect(card, 1, 2).open());
  card.addresses = {"no address"};
  CHECK_FALSE(connect(card, 1, 2).open());
  ranks.heartbeats.clear();
}

TEST_CASE("a stranger without the secret is not let in", "[heartbeat]") {
  Ranks ranks(2, 20);
  tcp::ListenerCard card = card_of(ranks.word);
  card.secret[0] ^= 1;
  CHECK_FALSE(connect(card, 1, 2).open());
  CHECK(ranks.ended[0] == 0);
}

TEST_CASE("a rank that fails takes the others along with its status", "[heartbeat][slow][waits]") {
  // Only ranks that have met can be told; on a busy machine that may take a while.
  const auto takes_along = [](std::size_t failing, int meeting_ms) {
    Ranks ranks(3, 20);
    pause_ms(meeting_ms);
    ranks.heartbeats[failing]->fail({2, "the disk is full"});
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
        wire_.send(tcp::make_beat(says_));
        while (wire_.receive()) continue;
      }
      wire_.send(std::string(1, tcp::goodbye_mark));
      wire_.flush();
    });
  }
  ~TestRank() {
    end_ = true;
    thread_.join();
  }

 private:
  tcp::Wire wire_;
  const Activity says_;
  std::atomic<bool> end_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("any rank, on any of its threads, learns which ranks keep it waiting",
          "[heartbeat][waits]") {
  Ranks ranks(3, 60, 2);
  const TestRank third(ranks.word, 2, 3, {0, comm::Phase::data, 0, 0, false, 1});
  const comm::Waiting waiting(ranks.activity);  // of the two ranks of this process
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

TEST_CASE("no rank is named as missing while one was never heard from", "[heartbeat][waits]") {
  Ranks ranks(3, 60, 2);
  pause_ms(1000);
  CHECK_FALSE(ranks.heartbeats[0]->find_absence(120));
  CHECK_FALSE(ranks.heartbeats[1]->find_absence(120));
}
