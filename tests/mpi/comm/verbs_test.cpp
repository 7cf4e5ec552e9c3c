#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "tests/mpi/comm/absence.hpp"
#include "tests/support/harness/mpi_world.hpp"
#include "tests/support/laws/verbs.hpp"

using namespace lockstep;
using namespace lockstep::comm;
using namespace lockstep::test;

namespace {

using Fault = std::string (*)(Communicator&, Memory&);

void require_none(Fault law) {
  const auto communicator = test::make_communicator(60);
  HostMemory memory;
  const std::string fault = law(*communicator, memory);
  CHECK(fault == "");
  REQUIRE(on_every_rank(fault.empty()));
}

}  // namespace

TEST_CASE("every verb is exact, for every type, group and length", "[mpi][verbs]") {
  require_none(fault_of_verbs);
}

TEST_CASE("collectives of groups in flight together do not mix", "[mpi][verbs]") {
  require_none(fault_of_groups_together);
}

TEST_CASE("messages keep their order, and exchanges do not block", "[mpi][verbs]") {
  require_none(fault_of_messages);
}

TEST_CASE("messages of a channel wait for no other ones", "[mpi][verbs][channels]") {
  require_none(fault_of_channels);
}

TEST_CASE("sums of 16 bits add in float and round once", "[mpi][verbs]") {
  require_none(fault_of_rounding);
}

TEST_CASE("groups split from a group know their ranks, and a group of one moves nothing",
          "[mpi][verbs]") {
  require_none(fault_of_nested_groups);
}

TEST_CASE("wrong arguments are errors that name the collective and leave the world usable",
          "[mpi][verbs]") {
  require_none(fault_of_arguments);
}

TEST_CASE("an operation outlives the group that started it", "[mpi][verbs]") {
  const auto communicator = test::make_communicator(60);
  const int rank = communicator->rank(), ranks = communicator->world();
  std::vector<std::int64_t> values(200001, rank + 1);
  communicator->split(0, rank, "brief")
      ->all_reduce(elements(values.data(), values.size()), Reduction::sum, "sum",
                   communicator->network());
  communicator->network().synchronize();
  const std::vector<std::int64_t> wanted(values.size(), ranks * (ranks + 1) / 2);
  REQUIRE(on_every_rank(values == wanted));
}

TEST_CASE("a message that is shorter than its receiver expects is an error that names the sender",
          "[mpi][verbs]") {
  const auto communicator = test::make_communicator(60);
  if (communicator->world() == 1) return;
  std::vector<float> values(10);
  std::string said = "fewer";
  if (communicator->rank() == 0)
    communicator->send(elements(values.data(), 9), 1, "halo", communicator->network());
  if (communicator->rank() == 1)
    communicator->receive(elements(values.data(), 10), 0, "halo", communicator->network());
  said = error_of([&] { communicator->network().synchronize(); });
  const std::string wanted = "halo: rank 0 sent fewer elements than this rank receives";
  INFO(said);
  REQUIRE(on_every_rank(communicator->rank() == 1 ? said.starts_with(wanted) : said.empty()));
}

TEST_CASE("a rank lost inside a group is named by its number in the world, with step and group",
          "[mpi][verbs]") {
  const int ranks = world().facts().world;
  if (ranks < 4) return;
  const auto communicator = test::make_communicator(2);
  const int rank = communicator->rank();
  const auto group = communicator->split(rank % 2, rank, "odd and even");
  communicator->begin_step(12);
  // The even ranks wait for nothing: they must not be named, nor wait themselves.
  const int absent = 3;
  std::vector<float> values(5000, 1);
  const std::string said = while_absent(absent, [&] {
    if (rank % 2 == 0) return;
    group->all_reduce(elements(values.data(), values.size()), Reduction::sum, "bucket 7",
                      communicator->network());
    communicator->network().synchronize();
  });
  const std::string wanted =
      rank % 2 == 0 ? ""
                    : "step 12, bucket 7 of group odd and even: rank 3 did not arrive within 2 s";
  INFO(said);
  REQUIRE(on_every_rank(rank == absent || said == wanted));
}

TEST_CASE("a rank that keeps others waiting through a second group is named", "[mpi][verbs]") {
  if (world().facts().world != 4) return;
  const auto communicator = test::make_communicator(2);
  const int rank = communicator->rank();
  const auto row = communicator->split(rank / 2, rank, "rows");
  const auto column = communicator->split(rank % 2, rank, "columns");
  // Rank 3 is lost. Rank 1 waits for it in its column, and rank 0 for rank 1 in their row. Rank 2
  // computes all the time.
  std::vector<float> values(5000, 1);
  const Elements data = elements(values.data(), values.size());
  device::Stream& network = communicator->network();
  const std::string said = while_absent(3, [&] {
    if (rank == 1) column->all_reduce(data, Reduction::sum, "second", network);
    if (rank == 0) row->all_reduce(data, Reduction::sum, "first", network);
    network.synchronize();
  });
  INFO(said);
  const bool right =
      rank == 2 ? said.empty() : rank == 3 || said.find("rank 3 did not arrive") != said.npos;
  REQUIRE(on_every_rank(right && said.find("rank 2") == said.npos));
}

TEST_CASE("a rank that does not come to a split is named", "[mpi][verbs]") {
  const int ranks = world().facts().world;
  if (ranks == 1) return;
  const auto communicator = test::make_communicator(2);
  const std::string said = while_absent(ranks - 1, [&] { communicator->split(0, 0, "rows"); });
  const std::string wanted =
      "the split into rows: rank " + std::to_string(ranks - 1) + " did not arrive within 2 s";
  INFO(said);
  REQUIRE(on_every_rank(communicator->rank() == ranks - 1 || said == wanted));
}
