#include "lockstep/comm/two_level/two_level.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/half.hpp"
#include "ports/mpi/call.hpp"
#include "tests/mpi/comm/absence.hpp"
#include "tests/mpi/comm/pretended_nodes.hpp"
#include "tests/support/harness/mpi_world.hpp"
#include "tests/support/laws/reals.hpp"
#include "tests/support/laws/sums.hpp"
#include "tests/support/laws/verbs.hpp"

using namespace lockstep;
using namespace lockstep::comm;
using namespace lockstep::device;
using lockstep::mpi::must;
using namespace lockstep::test;

namespace {

/// What this rank has sent to ranks of other nodes, while it is counted.
struct Sent {
  const Nodes* nodes = nullptr;  ///< null: nothing is counted
  std::size_t messages = 0, bytes = 0;
} sent;

void count_message(int count, MPI_Datatype type, int to, MPI_Comm comm) {
  int size = 0, rank = 0;
  MPI_Group group, all;
  must(MPI_Type_size(type, &size));
  must(MPI_Comm_group(comm, &group));
  must(MPI_Comm_group(MPI_COMM_WORLD, &all));
  must(MPI_Group_translate_ranks(group, 1, &to, all, &rank));
  must(MPI_Group_free(&group));
  must(MPI_Group_free(&all));
  if (sent.nodes->node_of(rank) == sent.nodes->node_of(world().facts().rank)) return;
  ++sent.messages;
  sent.bytes += static_cast<std::size_t>(count) * static_cast<std::size_t>(size);
}

/// Rank i on node i % count.
Nodes in_turn(int ranks, int count) {
  std::vector<RankPlace> places;
  for (int rank = 0; rank < ranks; ++rank)
    places.push_back({"machine", "node" + std::to_string(rank % count)});
  return Nodes(places);
}

/// Pretended nodes for this world: even, uneven, one node, one rank a node, in turn.
std::vector<Nodes> layouts() {
  const int ranks = world().facts().world;
  std::vector<Nodes> all{blocks({ranks}), in_turn(ranks, ranks)};
  if (ranks > 1) all.push_back(in_turn(ranks, 2));
  if (ranks > 2) all.push_back(blocks({ranks - 1, 1}));
  for (int each = 2; each < ranks; ++each)
    if (ranks % each == 0)
      all.push_back(blocks(std::vector<int>(static_cast<std::size_t>(ranks / each), each)));
  return all;
}

struct Fixture {
  explicit Fixture(const Nodes& nodes, TwoLevelSpec spec = {.deadline_s = 30})
      : flat(test::make_communicator(spec.deadline_s)),
        control(test::make_control(30)),
        made(make_two_level(*flat, *control, nodes, spec)) {}

  std::unique_ptr<Communicator> flat;
  Control* control;
  TwoLevel made;
  Communicator& two_level() { return *made.communicator; }
  void sum(std::vector<float>& values) {
    two_level().all_reduce(elements(values.data(), values.size()), Reduction::sum, "test",
                           two_level().network());
  }
};

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

// MPI's own interface for tools: this call replaces the library's, which has a second name.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  if (sent.nodes != nullptr) count_message(count, type, to, comm);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

TEST_CASE("a sum over two levels is exact on every rank, for any length and nodes",
          "[mpi][two_level]") {
  for (const Nodes& nodes : layouts()) {
    Fixture f(nodes, {.deadline_s = 30, .most_floats = 100000});
    REQUIRE(on_every_rank(f.made.communicator != nullptr));
    for (const std::size_t count :
         {0, 1, 2, 15, 16, 17, 1023, 1025, 4099, 65537, 100000, 100001, 1000003}) {
      std::vector<float> values = small_integers(f.flat->rank(), count + 1);
      const float guard = values.back();
      f.two_level().all_reduce(elements(values.data(), count), Reduction::sum, "test",
                               f.two_level().network());
      f.two_level().network().synchronize();
      const bool untouched = values.back() == guard;
      values.pop_back();
      INFO(count << " floats on " << nodes.count() << " nodes");
      REQUIRE(on_every_rank(is_sum(values) && untouched));
    }
  }
}

TEST_CASE("over two levels sums of 16 bits add in float, and round once on each level",
          "[mpi][two_level]") {
  for (const Nodes& nodes : layouts())
    for (const std::size_t count : {1, 1025, 250001}) {
      Fixture f(nodes, {.deadline_s = 30, .most_floats = 100000});
      // Sums beyond 512 are multiples of 4 in this format, those beyond 1024 of 8.
      const auto given = [](int rank) { return 256 + 2 * rank; };
      const auto mine = static_cast<float>(given(f.flat->rank()));
      std::vector<std::uint16_t> values(count, round_to_bf16(mine));
      f.two_level().all_reduce({values.data(), count, ElementType::bf16}, Reduction::sum, "test",
                               f.two_level().network());
      f.two_level().network().synchronize();
      float wanted = 0;
      for (std::size_t node = 0; node < nodes.count(); ++node) {
        float of_node = 0;
        for (const int rank : nodes.ranks_of(node)) of_node += static_cast<float>(given(rank));
        wanted += widen_bf16(round_to_bf16(of_node));
      }
      const std::uint16_t rounded = round_to_bf16(wanted);
      INFO(count << " numbers on " << nodes.count() << " nodes");
      REQUIRE(on_every_rank(std::all_of(values.begin(), values.end(),
                                        [&](std::uint16_t one) { return one == rounded; })));
    }
}

TEST_CASE("sums over two levels in flight together do not mix", "[mpi][two_level]") {
  for (const Nodes& nodes : layouts()) {
    Fixture f(nodes);
    std::mt19937 lengths(11), pauses(static_cast<unsigned>(f.flat->rank()));
    std::vector<std::vector<float>> all;
    std::vector<std::unique_ptr<Event>> events;
    for (int i = 0; i < 40; ++i) {
      all.push_back(small_integers(f.flat->rank(), lengths() % (i % 5 == 0 ? 200000 : 3000)));
      f.sum(all.back());
      events.push_back(f.two_level().network().record());
      for (unsigned calls = pauses() % 4; calls > 0; --calls) f.two_level().progress();
    }
    bool right = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      f.two_level().network().wait(*events[i]);
      right = right && is_sum(all[i]);
    }
    REQUIRE(on_every_rank(right));
  }
}

TEST_CASE("a sum over two levels has the same bits on all ranks and in each run",
          "[mpi][two_level]") {
  for (const Nodes& nodes : layouts()) {
    Fixture f(nodes);
    std::string first;
    for (int run = 0; run < 3; ++run) {
      std::vector<float> values = reals(world().facts().rank, 150007);
      f.sum(values);
      f.two_level().network().synchronize();
      if (run == 0) first = bytes_of(values);
      const auto all = f.control->gather(bytes_of(values), "bits");
      REQUIRE(on_every_rank(std::all_of(all.begin(), all.end(),
                                        [&](const std::string& bits) { return bits == first; })));
    }
  }
}

TEST_CASE("on up to two nodes the bits of a sum do not depend on how the data is cut",
          "[mpi][two_level]") {
  for (const Nodes& nodes : layouts()) {
    if (nodes.count() > 2) continue;
    std::string whole;
    for (const std::size_t most : {200000, 1000, 33}) {
      Fixture f(nodes, {.deadline_s = 30, .most_floats = most});
      std::vector<float> values = reals(world().facts().rank, 5003);
      f.sum(values);
      f.two_level().network().synchronize();
      if (most == 200000) whole = bytes_of(values);
      REQUIRE(on_every_rank(bytes_of(values) == whole));
    }
  }
}

TEST_CASE("each rank sends 2 (nodes - 1) messages a sum to other nodes, and no byte twice",
          "[mpi][two_level]") {
  for (const Nodes& nodes : layouts()) {
    Fixture f(nodes);
    std::size_t fewest = nodes.world();
    for (std::size_t node = 0; node < nodes.count(); ++node)
      fewest = std::min(fewest, nodes.ranks_of(node).size());
    const bool is_owner = nodes.local_index(f.flat->rank()) < fewest;
    const std::size_t peers = is_owner ? nodes.count() - 1 : 0;
    const std::size_t bucket = 16 * 1024 * fewest * nodes.count();  // each owner's part: 64 KB
    std::vector<float> values = small_integers(f.flat->rank(), bucket);
    f.control->barrier("before");
    sent = {.nodes = &nodes};
    f.sum(values);
    f.two_level().network().synchronize();
    sent.nodes = nullptr;
    INFO(sent.messages << " messages of " << sent.bytes << " bytes to " << peers << " nodes");
    REQUIRE(on_every_rank(sent.messages == 2 * peers));
    REQUIRE(on_every_rank(sent.bytes == 2 * peers * 64 * 1024));
  }
}

TEST_CASE("only a rank that never joins a sum over two levels is named, to all others",
          "[mpi][two_level]") {
  const int ranks = world().facts().world;
  if (ranks == 1) return;
  for (const int absent : {0, ranks - 1}) {
    Fixture f(in_turn(ranks, 2), {.deadline_s = 2});
    std::vector<float> values = small_integers(f.flat->rank(), 100000);
    const std::string said = while_absent(absent, [&] {
      f.sum(values);
      f.two_level().network().synchronize();
    });
    INFO(said);
    REQUIRE(on_every_rank(f.flat->rank() == absent ||
                          (said.starts_with("test") &&
                           said.find(": rank " + std::to_string(absent) +
                                     " did not arrive within 2 s") != std::string::npos)));
  }
}

TEST_CASE("a communicator of two levels keeps the laws of all verbs", "[mpi][two_level]") {
  for (const Nodes& nodes : {in_turn(world().facts().world, 2), blocks({world().facts().world})})
    for (const auto law : {fault_of_verbs, fault_of_groups_together, fault_of_messages,
                           fault_of_nested_groups, fault_of_arguments}) {
      Fixture f(nodes);
      test::HostMemory memory;
      const std::string fault = law(f.two_level(), memory);
      CHECK(fault == "");
      REQUIRE(on_every_rank(fault.empty()));
    }
}

TEST_CASE("a sum over two levels outlives the communicator that started it", "[mpi][two_level]") {
  Fixture f(in_turn(world().facts().world, 2));
  const auto all = f.two_level().split(0, f.flat->rank(), "all");
  std::vector<float> values = small_integers(f.flat->rank(), 200001);
  f.sum(values);
  f.made.communicator.reset();
  all->network().synchronize();
  REQUIRE(on_every_rank(is_sum(values)));
}

TEST_CASE("other verbs keep their order with sums over two levels", "[mpi][two_level]") {
  for (const Nodes& nodes : layouts()) {
    Fixture f(nodes);
    Communicator& all = f.two_level();
    const int last = all.world() - 1;
    std::vector<float> values = small_integers(all.rank(), 50000);
    std::vector<std::int32_t> counts(10, all.rank());
    const Elements data = elements(values.data(), values.size());
    if (all.rank() != last) std::fill(values.begin(), values.end(), 1.0f);
    all.broadcast(data, last, "copy", all.network());
    all.all_reduce(elements(counts.data(), counts.size()), Reduction::max, "max", all.network());
    all.all_reduce(data, Reduction::sum, "sum", all.network());
    const auto half = all.split(all.rank() % 2, 0, "halves");
    half->all_reduce(data, Reduction::max, "max of a half", half->network());
    all.all_reduce(data, Reduction::sum, "sum", all.network());
    all.network().synchronize();
    bool right = counts == std::vector<std::int32_t>(10, last);
    const auto scale = static_cast<float>(all.world() * all.world());
    for (std::size_t i = 0; i < values.size(); ++i)
      right = right && values[i] == scale * test::small_integer(last, i);
    REQUIRE(on_every_rank(right));
  }
}

TEST_CASE("where a rank cannot share memory, all ranks learn which one and why",
          "[mpi][two_level]") {
  const int last = world().facts().world - 1;
  const auto flat = test::make_communicator(30);
  const auto control = test::make_control(30);
  TwoLevel made;
  with_no_more_files(flat->rank() == last,
                     [&] { made = make_two_level(*flat, *control, blocks({last + 1}), {}); });
  INFO(made.obstacle);
  REQUIRE(on_every_rank(made.communicator == nullptr));
  REQUIRE(on_every_rank(made.obstacle.starts_with("rank " + std::to_string(last) + ": ") &&
                        made.obstacle.find("Too many open files") != std::string::npos));
}
