// Waits that a caller makes next to a communicator over TCP.
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <chrono>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/two_level/two_level.hpp"
#include "lockstep/device/idle.hpp"
#include "tests/unit/ports/tcp/tcp_ranks.hpp"

namespace {

using Catch::EndsWith;
using namespace lockstep;
using namespace lockstep::comm;
using namespace lockstep::test;

/// Waits for `ranks` of the group until the deadline throws.
std::string wait_in_vain(Communicator& group, const std::vector<int>& ranks) {
  const auto deadline = group.make_deadline("chunk", ranks);
  for (device::Idle idle;; idle()) deadline->poll();
}

}  // namespace

TEST_CASE("over TCP a caller's own wait has a deadline, and only the absent rank is named",
          "[tcp][slow][waits]") {
  std::barrier all_told(4);  // no wait of a rank
  const auto told = ranks_tell(4, [&](Control& control) {
    const auto world = connect(0.5);
    world->begin_step(12);
    control.barrier("all are here");
    std::string said = "absent";
    if (control.rank() != 2)
      said = tell([&](Control&) { return wait_in_vain(*world, {0, 1, 2, 3}); }, control);
    all_told.arrive_and_wait();
    return said;
  });
  for (const int rank : {0, 1, 3})
    CHECK(told[static_cast<std::size_t>(rank)] ==
          "step 12, chunk: rank 2 did not arrive within 0.5 s");
}

TEST_CASE("over TCP a rank that comes just after the deadline, while others ask, is in time",
          "[tcp][slow][waits]") {
  std::atomic<bool> asked = false;
  const auto told = ranks_tell(2, [&](Control& control) {
    const auto world = connect(control.rank() == 1 ? 0.5 : 60, [&](double) {
      asked = true;  // the deadline has passed
      return std::optional<Absence>();
    });
    while (control.rank() == 0 && !asked) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::vector<float> values(100000, 1);
    world->all_reduce(elements(values.data(), values.size()), Reduction::sum, "sum",
                      world->network());
    world->network().synchronize();
    return std::string(values == std::vector<float>(100000, 2) ? "right" : "wrong");
  });
  CHECK(told == std::vector<std::string>(2, "right"));
}

TEST_CASE("over TCP a rank that has something else to do is named", "[tcp][slow][waits]") {
  std::atomic<bool> over = false;
  const auto told = ranks_tell(3, [&](Control& control) {
    const auto world = connect(control.rank() == 1 ? 0.5 : 60);
    float value = 1, more = 1;
    const auto talk = [&](int peer, bool first) {
      first ? world->send(elements(&value, 1), peer, "talk", world->network())
            : world->receive(elements(&value, 1), peer, "talk", world->network());
      world->network().synchronize();
    };
    if (control.rank() == 1) {
      const std::string said = tell(
          [&](Control&) {
            world->receive(elements(&more, 1), 0, "pair", world->network());
            world->network().synchronize();
            return std::string("came");
          },
          control);
      over = true;
      return said;
    }
    for (; value != 0; talk(2 - control.rank(), control.rank() == 2)) {
      talk(2 - control.rank(), control.rank() == 0);
      if (control.rank() == 2 && over) value = 0;
    }
    return std::string("talked");
  });
  CHECK(told[1] == "pair: rank 0 did not arrive within 0.5 s");
}

TEST_CASE("over TCP a rank that needs no connection answers, and is not named",
          "[tcp][slow][waits]") {
  // Rank 0 waits for rank 1, that for rank 2, and that for rank 3, which does not come.
  std::barrier all_told(4);  // no wait of a rank
  const auto told = ranks_tell(4, [&](Control& control) {
    const int rank = control.rank();
    const auto world = connect(rank == 0 ? 0.5 : 20);
    control.barrier("all are here");
    std::string said = "absent";
    if (rank < 3) said = tell([&](Control&) { return wait_in_vain(*world, {rank + 1}); }, control);
    all_told.arrive_and_wait();
    return said;
  });
  for (const std::size_t rank : {0u, 1u, 2u})
    CHECK(told[rank] == "chunk: rank 3 did not arrive within 0.5 s");
}

TEST_CASE("over TCP a rank that sends and ends at once is known to have gone", "[tcp][slow]") {
  std::latch has_ended(2);
  const auto told = ranks_tell(2, [&](Control& control) {
    auto world = connect(10);
    float value = 1;
    const auto first = elements(&value, 1);
    world->all_reduce(first, Reduction::sum, "sum", world->network());
    world->network().synchronize();
    if (control.rank() == 1) {
      world->send(first, 0, "last", world->network());
      world.reset();
      own_plane().reset();
      has_ended.count_down();
      return std::string("sent");
    }
    has_ended.arrive_and_wait();
    return tell([&](Control&) { return wait_in_vain(*world, {1}); }, control);
  });
  CHECK(told[0] == "lost: chunk: rank 1 has gone");
}

TEST_CASE("over TCP a caller's wait inside a group names ranks by their numbers in the world",
          "[tcp][slow][waits]") {
  std::barrier all_told(4);  // no wait of a rank
  const auto told = ranks_tell(4, [&](Control& control) {
    const auto world = connect(0.5);
    const auto group = world->split(control.rank() % 2, control.rank(), "odd and even");
    control.barrier("all are here");
    std::string said = "waits for nothing";
    if (control.rank() == 1)
      said = tell([&](Control&) { return wait_in_vain(*group, {0, 1}); }, control);
    all_told.arrive_and_wait();
    return said;
  });
  CHECK(told[1] == "chunk of group odd and even: rank 3 did not arrive within 0.5 s");
}

TEST_CASE("over TCP what arrives renews a caller's deadline", "[tcp][waits]") {
  const auto told = ranks_tell(2, [](Control& control) {
    const auto world = connect(0.2);
    const auto deadline = world->make_deadline("chunk", {0, 1});
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(110));
      deadline->renew();
      deadline->poll();
    }
    control.barrier("both have waited");
    return std::string("in time");
  });
  CHECK(told == std::vector<std::string>(2, "in time"));
}

TEST_CASE("over TCP a rank that keeps others waiting through a second one is named",
          "[tcp][slow][waits]") {
  // Rank 0 waits for rank 1, whose own wait for rank 2 is not over for a long time.
  std::barrier all_told(3);  // no wait of a rank
  const auto told = ranks_tell(3, [&](Control& control) {
    const int rank = control.rank();
    const auto world = connect(rank == 0 ? 0.5 : 20);
    world->split(0, 0, "all of them");
    control.barrier("all are here");
    std::string said = "absent";
    if (rank < 2) said = tell([&](Control&) { return wait_in_vain(*world, {rank + 1}); }, control);
    all_told.arrive_and_wait();
    return said;
  });
  for (const std::size_t rank : {0u, 1u})
    CHECK(told[rank] == "chunk: rank 2 did not arrive within 0.5 s");
}

TEST_CASE("over TCP only a rank that never joins a sum over two levels is named, to all others",
          "[tcp][two_level][slow][waits]") {
  std::vector<RankPlace> places;
  for (int rank = 0; rank < 4; ++rank)
    places.push_back({"machine", "node" + std::to_string(rank / 2)});
  const Nodes nodes(places);
  for (const int absent : {0, 3}) {
    std::barrier all_told(4);  // no wait of a rank
    const auto told = ranks_tell(4, [&](Control& control) {
      const auto flat = connect(0.5);
      TwoLevel made = make_two_level(*flat, control, nodes, {.deadline_s = 0.5});
      if (!made.communicator) return made.obstacle;
      std::vector<float> values(100000, 1);
      std::string said = "absent";
      if (control.rank() != absent)
        said = tell(
            [&](Control&) {
              made.communicator->all_reduce(elements(values.data(), values.size()), Reduction::sum,
                                            "bucket 7", made.communicator->network());
              made.communicator->network().synchronize();
              return std::string("done");
            },
            control);
      all_told.arrive_and_wait();
      return said;
    });
    for (int rank = 0; rank < 4; ++rank)
      if (rank != absent)
        CHECK_THAT(told[static_cast<std::size_t>(rank)],
                   EndsWith(": rank " + std::to_string(absent) + " did not arrive within 0.5 s"));
  }
}

TEST_CASE("over TCP a wait for a rank that makes steps begins again, whatever the deadline",
          "[tcp][slow][waits]") {
  std::atomic<int> asked = 0;
  const auto told = ranks_tell(2, [&](Control& control) {
    const auto world = connect(control.rank() == 1 ? 0.5 : 60, [&](double) {
      ++asked;
      return Absence{.ranks = {}, .text = "the others wait for rank 0", .nearer = true};
    });
    // Nothing answers meanwhile: without that, the second question would be the end.
    while (control.rank() == 0 && asked < 3)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    float value = 1;
    world->all_reduce(elements(&value, 1), Reduction::sum, "sum", world->network());
    world->network().synchronize();
    return std::string(value == 2 ? "right" : "wrong");
  });
  CHECK(told == std::vector<std::string>(2, "right"));
}

TEST_CASE("over TCP a connection that broke to a rank that is alive is the network's fault",
          "[tcp][slow][waits]") {
  std::latch has_ended(2);
  const auto told = ranks_tell(2, [&](Control& control) {
    auto world = connect(60, [](double) {
      return Absence{.ranks = {}, .text = "all ranks are alive", .ending = Ending::network};
    });
    float value = 1;
    const auto first = elements(&value, 1);
    world->all_reduce(first, Reduction::sum, "sum", world->network());
    world->network().synchronize();
    const bool ends = control.rank() == 1;
    if (ends) world.reset(), own_plane().reset();
    has_ended.arrive_and_wait();
    if (ends) return std::string("alive");
    return tell([&](Control&) { return wait_in_vain(*world, {1}); }, control);
  });
  CHECK(told[0] ==
        "outside: chunk: the connection between localhost and localhost, where rank 1 is alive, "
        "broke: does the network between these nodes work?");
}
