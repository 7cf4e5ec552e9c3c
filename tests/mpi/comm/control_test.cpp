#include "lockstep/comm/control.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/clock.hpp"
#include "tests/mpi/comm/absence.hpp"
#include "tests/support/harness/mpi_world.hpp"

using namespace lockstep;
using namespace lockstep::comm;
using lockstep::test::error_of;
using lockstep::test::meeting_file;
using lockstep::test::on_every_rank;
using lockstep::test::while_absent;
using lockstep::test::world;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string words_of(int rank) {
  return rank % 2 == 1 ? std::string() : "rank" + std::string(1, '\0') + std::to_string(rank);
}

}  // namespace

TEST_CASE("every rank gets every rank's words in rank order", "[mpi][control]") {
  const auto control = test::make_control(30);
  const std::vector<std::string> all = control->gather(words_of(control->rank()), "words");
  bool right = all.size() == static_cast<std::size_t>(control->world());
  for (int r = 0; right && r < control->world(); ++r)
    right = all[static_cast<std::size_t>(r)] == words_of(r);
  REQUIRE(on_every_rank(right));
}

TEST_CASE("rank 0 alone gets every rank's words in rank order", "[mpi][control]") {
  const auto control = test::make_control(30);
  const std::vector<std::string> all = control->gather_at_root(words_of(control->rank()), "words");
  const bool root = control->rank() == 0;
  bool right = all.size() == (root ? static_cast<std::size_t>(control->world()) : 0);
  for (std::size_t r = 0; right && r < all.size(); ++r)
    right = all[r] == words_of(static_cast<int>(r));
  REQUIRE(on_every_rank(right));
}

TEST_CASE("a long text arrives whole", "[mpi][control]") {
  const auto control = test::make_control(30);
  const std::string mine(3000000 + static_cast<std::size_t>(control->rank()), 'x');
  const std::vector<std::string> all = control->gather(mine, "long");
  REQUIRE(on_every_rank(all.back().size() == 3000000 + all.size() - 1));
  const std::string root = control->broadcast(mine, "long");
  REQUIRE(on_every_rank(root == std::string(3000000, 'x')));
}

TEST_CASE("sums, maxima and rank 0's words are the same on every rank", "[mpi][control]") {
  const auto control = test::make_control(30);
  const double rank = control->rank(), count = control->world();
  REQUIRE(on_every_rank(control->sum({rank, 0.5}, "sum") ==
                        std::vector<double>{count * (count - 1) / 2, count / 2}));
  REQUIRE(on_every_rank(control->max({rank, -rank}, "max") == std::vector<double>{count - 1, 0}));
  REQUIRE(on_every_rank(control->sum({}, "nothing").empty()));
  REQUIRE(on_every_rank(control->broadcast("from " + std::to_string(rank), "root") ==
                        "from " + std::to_string(0.0)));
  const bool last = control->rank() == control->world() - 1;
  REQUIRE(on_every_rank(control->any(last, "any") && !control->any(false, "none")));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(on_every_rank(std::isnan(control->max({last ? nan : 1.0}, "nan")[0])));
}

TEST_CASE("no rank passes a barrier before the last has come", "[mpi][control]") {
  const auto control = test::make_control(30);
  double late = 0;
  control->barrier("before");
  if (control->rank() == control->world() - 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    late = now_s();
  }
  control->barrier("after");
  const double passed = now_s();  // one node's ranks share this clock
  REQUIRE(on_every_rank(passed >= control->max({late}, "when")[0]));
}

TEST_CASE("a thousand meetings in a row keep their order", "[mpi][control]") {
  const auto control = test::make_control(30);
  bool right = true;
  for (int i = 0; i < 1000 && right; ++i)
    right = control->broadcast(std::to_string(i), "turn") == std::to_string(i);
  REQUIRE(on_every_rank(right));
}

TEST_CASE("only a rank that does not arrive is named, to all others, after the deadline",
          "[mpi][control]") {
  const int ranks = world().facts().world;
  if (ranks == 1) return;
  for (const int absent : {ranks - 1, 0}) {
    const auto control = test::make_control(2);
    control->barrier("all are here");
    const std::string said = while_absent(absent, [&] { control->barrier("epoch 3"); });
    const std::string expected =
        "epoch 3: rank " + std::to_string(absent) + " did not arrive within 2 s";
    INFO(said);
    REQUIRE(on_every_rank(control->rank() == absent || said == expected));
  }
}

TEST_CASE("a rank that comes just after the deadline, while the others ask, is in time",
          "[mpi][control]") {
  const int ranks = world().facts().world;
  if (ranks == 1) return;
  for (const int late : {ranks - 1, 0}) {
    auto& plane = test::make_plane(late == world().facts().rank ? 30 : 2);
    Control* const control = &plane.control();
    const auto asked = meeting_file(control->broadcast(std::to_string(getpid()), "process id"));
    plane.ask_first([&](double) {  // the deadline has passed
      std::ofstream(asked) << "asked";
      return std::optional<Absence>();
    });
    for (const double end = now_s() + 60; control->rank() == late && now_s() < end;) {
      if (std::filesystem::exists(asked)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const std::string said = error_of([&] { control->barrier("epoch 3"); });
    INFO(said);
    REQUIRE(on_every_rank(said.empty()));
    plane.ask_first({});
    std::filesystem::remove(asked);
    control->barrier("the file has gone");
  }
}

TEST_CASE("a rank that waits for something else is named with it, also to itself",
          "[mpi][control]") {
  const int ranks = world().facts().world;
  if (ranks == 1) return;
  auto& plane = test::make_plane(2);
  const auto communicator = plane.connect(2);
  const bool astray = communicator->rank() == ranks - 1;
  const std::string said = error_of([&] {
    if (astray) {
      float value = 0;
      communicator->receive(elements(&value, 1), 0, "checkpoint", communicator->network());
      communicator->network().synchronize();
    }
    plane.control().barrier("epoch 3");
  });
  INFO(said);
  REQUIRE(on_every_rank(contains(said, "checkpoint") && contains(said, "epoch 3") &&
                        contains(said, "all ranks answer")));
}

TEST_CASE("ranks that meet in different phases are told both", "[mpi][control]") {
  if (world().facts().world == 1) return;
  const auto control = test::make_control(2);
  const bool last = control->rank() == control->world() - 1;
  const std::string said = error_of([&] { control->barrier(last ? "checkpoint" : "epoch 3"); });
  REQUIRE(on_every_rank(contains(said, "checkpoint") && contains(said, "epoch 3")));
}
