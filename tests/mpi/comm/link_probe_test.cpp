#include "lockstep/comm/worlds/link_probe.hpp"

#include <catch2/catch.hpp>

#include "lockstep/cluster/nodes/node_measure.hpp"
#include "tests/mpi/comm/absence.hpp"

using namespace lockstep;
using lockstep::test::on_every_rank;
using lockstep::test::world;

TEST_CASE("all links are measured in a tournament, and both ends of each get the same",
          "[mpi][preflight]") {
  const comm::WorldFacts& facts = world().facts();
  const auto me = static_cast<std::size_t>(facts.rank);
  const auto count = static_cast<std::size_t>(facts.world);
  const auto control = test::make_control(30);
  const auto probe = comm::make_link_probe(test::make_communicator(30));
  std::vector<double> low(count * count, 0), high(count * count, 0);
  bool sound = true;
  for (std::size_t round = 0; round < cluster::tournament_rounds(count); ++round) {
    const auto partner = cluster::partner_in(round, me, count);
    if (!partner) continue;
    const comm::LinkRate rate = *probe->measure(static_cast<int>(*partner), 0.03);
    sound = sound && rate.bytes_per_s > 0 && rate.round_trip_s > 0;
    const std::size_t link = std::min(me, *partner) * count + std::max(me, *partner);
    (me < *partner ? low : high)[link] = rate.bytes_per_s;
  }
  REQUIRE(on_every_rank(sound));
  REQUIRE(on_every_rank(control->max(low, "low ends") == control->max(high, "high ends")));
}

TEST_CASE("a link is not measured when one of its ends has no time left", "[mpi][preflight]") {
  const int me = world().facts().rank, partner = me ^ 1;
  const bool has_partner = partner < world().facts().world;  // the last of an odd number has none
  if (world().facts().world == 1) return;
  const auto probe = comm::make_link_probe(test::make_communicator(30));
  bool right = true;
  for (const int busy : {0, 1, 2}) {
    if (!has_partner) break;
    const auto rate = probe->measure(partner, 0.03, me % 2 != busy);
    right = right && rate.has_value() == (busy == 2);
  }
  REQUIRE(on_every_rank(right));
}

TEST_CASE("a partner that does not come to the measurement is named to all, after the deadline",
          "[mpi][preflight]") {
  const int ranks = world().facts().world;
  if (ranks == 1) return;
  auto& plane = test::make_plane(30);
  comm::Control* const control = &plane.control();
  const auto probe = comm::make_link_probe(plane.connect(2));
  const int absent = ranks - 1, me = world().facts().rank;
  const std::string said = test::while_absent(absent, [&] {
    if (me == 0) probe->measure(absent, 0.03);
    control->barrier("preflight of the network");
  });
  INFO(said);
  const bool named = said.find("measuring the network between rank 0 and rank " +
                               std::to_string(absent)) != said.npos &&
                     said.find("did not arrive within 2 s") != said.npos;
  REQUIRE(on_every_rank(me == absent || named));
}
