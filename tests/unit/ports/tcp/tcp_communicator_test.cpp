#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/direct/direct.hpp"
#include "lockstep/comm/worlds/link_probe.hpp"
#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/mesh/mesh.hpp"
#include "tests/support/laws/reals.hpp"
#include "tests/support/laws/verbs.hpp"
#include "tests/unit/ports/tcp/tcp_ranks.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::comm;
using namespace lockstep::tcp;
using namespace lockstep::test;
using Catch::Matchers::StartsWith;

using Fault = std::string (*)(Communicator&, Memory&);

void require_none(Fault law) {
  for (const int world : {1, 2, 3, 4, 6}) {
    INFO(world << " ranks");
    const auto told = ranks_tell(world, [&](Control&) {
      const auto communicator = connect();
      HostMemory memory;
      return law(*communicator, memory);
    });
    CHECK(told == std::vector<std::string>(static_cast<std::size_t>(world)));
  }
}

}  // namespace

TEST_CASE("over TCP every verb is exact, for every type, group and length", "[tcp][verbs][slow]") {
  require_none(fault_of_verbs);
}

TEST_CASE("over TCP collectives of groups in flight together do not mix", "[tcp][verbs]") {
  require_none(fault_of_groups_together);
}

TEST_CASE("over TCP messages keep their order, and exchanges do not block", "[tcp][verbs]") {
  require_none(fault_of_messages);
}

TEST_CASE("over TCP messages of a channel wait for no other ones", "[tcp][verbs][channels]") {
  require_none(fault_of_channels);
}

TEST_CASE("over TCP sums of 16 bits add in float and round once", "[tcp][verbs]") {
  require_none(fault_of_rounding);
}

TEST_CASE("over TCP groups of groups know their ranks, and a group of one moves nothing",
          "[tcp][verbs]") {
  require_none(fault_of_nested_groups);
}

TEST_CASE("over TCP wrong arguments are errors, and leave the world usable", "[tcp][verbs]") {
  require_none(fault_of_arguments);
}

TEST_CASE("over TCP a sum begins with its owner's part and takes the others' in their order",
          "[tcp]") {
  for (const int world : {2, 3, 4}) {
    const std::size_t count = 250007;
    std::vector<float> wanted(count);
    for (int owner = 0; owner < world; ++owner) {
      const Elements chunk = owned_chunk(elements(wanted.data(), count), owner, world);
      const auto first = static_cast<float*>(chunk.data) - wanted.data();
      for (int i = 0; i < world; ++i) {
        const std::vector<float> part = reals((owner + i) % world, count);
        for (std::size_t k = 0; k < chunk.count; ++k)
          wanted[static_cast<std::size_t>(first) + k] += part[static_cast<std::size_t>(first) + k];
      }
    }
    const auto told = ranks_tell(world, [&](Control& control) {
      const auto communicator = connect();
      std::vector<float> values = reals(control.rank(), count);
      communicator->all_reduce(elements(values.data(), count), Reduction::sum, "sum",
                               communicator->network());
      communicator->network().synchronize();
      return std::string(std::memcmp(values.data(), wanted.data(), 4 * count) == 0 ? "" : "other");
    });
    CHECK(told == std::vector<std::string>(static_cast<std::size_t>(world)));
  }
}

TEST_CASE("over TCP a rank may be far ahead of the others", "[tcp]") {
  const auto told = ranks_tell(3, [](Control& control) {
    const auto communicator = connect();
    std::vector<std::vector<float>> all(12, std::vector<float>(100003, 1));
    if (control.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (std::vector<float>& values : all) {
      communicator->all_reduce(elements(values.data(), values.size()), Reduction::sum, "sum",
                               communicator->network());
      if (control.rank() == 1) communicator->network().synchronize();
    }
    communicator->network().synchronize();
    for (const std::vector<float>& values : all)
      if (values != std::vector<float>(100003, 3)) return "wrong";
    return "right";
  });
  CHECK(told == std::vector<std::string>(3, "right"));
}

TEST_CASE("over TCP an operation outlives the group that started it", "[tcp]") {
  const auto told = ranks_tell(3, [](Control& control) {
    const auto communicator = connect();
    std::vector<std::int64_t> values(200001, control.rank() + 1);
    communicator->split(0, control.rank(), "brief")
        ->all_reduce(elements(values.data(), values.size()), Reduction::sum, "sum",
                     communicator->network());
    communicator->network().synchronize();
    return values == std::vector<std::int64_t>(values.size(), 6) ? "right" : "wrong";
  });
  CHECK(told == std::vector<std::string>(3, "right"));
}

TEST_CASE("over TCP only a rank that never joins a sum is named, to all others",
          "[tcp][slow][waits]") {
  const auto told = ranks_tell(4, [](Control& control) {
    const auto communicator = connect(1);
    std::vector<float> values(100000, 1);
    const auto sum = [&](const char* name) {
      communicator->all_reduce(elements(values.data(), values.size()), Reduction::sum, name,
                               communicator->network());
      communicator->network().synchronize();
    };
    sum("bucket 6");
    communicator->begin_step(12);
    if (control.rank() == 2)
      std::this_thread::sleep_for(std::chrono::seconds(6));
    else
      sum("bucket 7");
    return std::string("absent");
  });
  for (const int rank : {0, 1, 3})
    CHECK(told[static_cast<std::size_t>(rank)] ==
          "step 12, bucket 7: rank 2 did not arrive within 1 s");
}

TEST_CASE("over TCP a rank lost inside a group is named by its number in the world",
          "[tcp][slow][waits]") {
  const auto told = ranks_tell(4, [](Control& control) {
    const auto communicator = connect(1);
    const auto group = communicator->split(control.rank() % 2, control.rank(), "odd and even");
    std::vector<float> values(5000, 1);
    if (control.rank() == 3) std::this_thread::sleep_for(std::chrono::seconds(5));
    if (control.rank() != 1) return std::string("waits for nothing");
    group->all_reduce(elements(values.data(), values.size()), Reduction::sum, "bucket 7",
                      communicator->network());
    communicator->network().synchronize();
    return std::string("done");
  });
  CHECK(told[1] == "bucket 7 of group odd and even: rank 3 did not arrive within 1 s");
  CHECK(told[0] == "waits for nothing");
}

TEST_CASE("over TCP the heartbeats' finding comes first", "[tcp][slow][waits]") {
  const auto told = ranks_tell(2, [](Control& control) {
    const auto communicator = connect(1, [](double) {
      return Absence{{7, 8}, "ranks 7 and 8 are silent"};
    });
    std::vector<float> values(5000, 1);
    if (control.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(4));
    if (control.rank() == 1) return std::string("absent");
    communicator->all_reduce(elements(values.data(), values.size()), Reduction::sum, "bucket 7",
                             communicator->network());
    communicator->network().synchronize();
    return std::string("done");
  });
  CHECK(told[0] == "bucket 7: ranks 7-8 did not arrive within 1 s");
}

TEST_CASE("over TCP all ranks hear that a file system or the network is at fault",
          "[tcp][slow][waits]") {
  const auto frozen = ranks_tell(3, [](Control& control) {
    const int rank = control.rank();
    const auto communicator = connect(rank == 2 ? 10 : 1, [](double) {
      return Absence{{1}, "the others wait for rank 1", Ending::file_system};
    });
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    if (rank == 1) return std::string("absent");
    std::vector<float> values(5000, 1);
    communicator->all_reduce(elements(values.data(), values.size()), Reduction::sum, "bucket 7",
                             communicator->network());
    communicator->network().synchronize();
    return std::string("done");
  });
  for (const int rank : {0, 2})
    CHECK(frozen[static_cast<std::size_t>(rank)] ==
          "outside: bucket 7: rank 1 did not arrive within 1 s; the others wait for rank 1");

  const auto cut = ranks_tell(2, [](Control& control) {
    const auto communicator = connect(1);
    float value = 0;  // as if the other's message were lost
    communicator->receive(elements(&value, 1), 1 - control.rank(), "pair", communicator->network());
    communicator->network().synchronize();
    return std::string("done");
  });
  for (const std::string& told : cut)
    CHECK(told == "outside: pair: nothing came for 1 s, though all ranks answer");
}

TEST_CASE("over TCP a rank that has gone is named at once, when it is needed", "[tcp]") {
  std::latch has_gone(3);
  const auto told = ranks_tell(3, [&](Control& control) {
    auto communicator = connect();
    std::vector<float> values(100000, 1);
    const auto sum = [&] {
      communicator->all_reduce(elements(values.data(), values.size()), Reduction::sum, "sum",
                               communicator->network());
      communicator->network().synchronize();
    };
    const int rank = control.rank();
    sum();
    control.barrier("all have it");
    if (rank == 1) communicator.reset(), own_plane().reset();
    has_gone.arrive_and_wait();
    if (rank == 1) return std::string("gone");
    // The other two do not need it.
    const auto pair = std::vector<float>(4, 1);
    if (rank == 0)
      communicator->send(elements(values.data(), 4), 2, "pair", communicator->network());
    else
      communicator->receive(elements(values.data(), 4), 0, "pair", communicator->network());
    communicator->network().synchronize();
    sum();
    return std::string("done");
  });
  CHECK(told[1] == "gone");
  for (const int rank : {0, 2})
    CHECK_THAT(told[static_cast<std::size_t>(rank)],
               StartsWith("lost: sum: rank 1 has gone") || StartsWith("lost: sum: ranks "));
}

TEST_CASE("over TCP both ends of a link measure the same", "[tcp][preflight]") {
  const auto told = ranks_tell(2, [](Control& control) {
    const auto probe = make_link_probe(connect());
    const LinkRate rate = *probe->measure(1 - control.rank(), 0.03);
    if (probe->measure(1 - control.rank(), 0.03, control.rank() == 0)) return std::string("late");
    if (!(rate.bytes_per_s > 0 && rate.round_trip_s > 0)) return std::string("odd");
    return std::to_string(rate.bytes_per_s) + " " + std::to_string(1e9 * rate.round_trip_s);
  });
  CHECK(told[0] == told[1]);
  CHECK(told[0].size() > 5);
}

TEST_CASE("over TCP a message that is shorter than its receiver expects is an error", "[tcp]") {
  const auto told = ranks_tell(2, [](Control& control) {
    const auto communicator = connect(2);
    std::vector<float> values(10);
    if (control.rank() == 0)
      communicator->send(elements(values.data(), 9), 1, "halo", communicator->network());
    else
      communicator->receive(elements(values.data(), 10), 0, "halo", communicator->network());
    communicator->network().synchronize();
    return std::string("done");
  });
  CHECK(told[1] == "halo: rank 0 sent fewer elements than this rank receives");
}

namespace {

/// Tries to come in; the rank that listens answers while it waits for others.
bool comes_in(const ListenerCard& card, const char* purpose, int rank, int world) {
  ConnectAttempt attempt(card, purpose, rank, world);
  for (int i = 0; i < 300 && !attempt.failed(); ++i) {
    if (attempt.poll()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

}  // namespace

TEST_CASE("over TCP no stranger, false rank or other start comes in", "[tcp][slow]") {
  Mesh mesh({.rank = 0, .world = 3, .host = "localhost", .job = "test/8.0/0", .node = "localhost"});
  ListenerCard card = mesh.card(), wrong = card;
  card.addresses = wrong.addresses = {"127.0.0.1"};
  wrong.secret[3] ^= 1;
  std::atomic<bool> over = false;
  auto others = std::async(std::launch::async, [&]() -> std::string {
    const Socket mute = begin_connection("127.0.0.1", card.port);
    Wire http(begin_connection("127.0.0.1", card.port), 100);
    http.send("GET / HTTP/1.0");
    const char* job = "test/8.0/0";
    std::string said;
    if (comes_in(wrong, job, 2, 3)) said = "came in with a wrong secret";
    if (comes_in(card, "heartbeat", 2, 3)) said = "came in for something else";
    if (comes_in(card, job, 2, 4)) said = "came in from another world";
    if (comes_in(card, job, 3, 3)) said = "came in as a rank that does not exist";
    if (comes_in(card, job, 0, 3)) said = "came in as rank 0 itself";
    if (!comes_in(card, job, 2, 3)) said = "rank 2 did not come in";
    over = true;
    return said;
  });
  while (!over) mesh.move();
  CHECK(others.get() == "");
}
