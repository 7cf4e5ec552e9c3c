#include <algorithm>

#include <catch2/catch.hpp>

#include "lockstep/sys/launch.hpp"
#include "lockstep/sys/topology.hpp"
#include "tests/support/mpi_world.hpp"

namespace {

using namespace lockstep;
using sys::to_string;

/// All ranks of a test run on one machine.
std::vector<sys::LocalRank> everyone(comm::Control& control) {
  std::vector<sys::LocalRank> ranks;
  for (const std::string& mask : control.gather(to_string(sys::current_cpus()), "test: masks"))
    ranks.push_back({sys::parse_cpus(mask), ""});
  return ranks;
}

}  // namespace

TEST_CASE("every rank is bound to its share and reads it back") {
  const auto control = test::world().make_control(30);
  const auto ranks = everyone(*control);
  const auto me = static_cast<std::size_t>(control->rank());
  const sys::Machine machine = sys::look_at_machine();
  const sys::Plan plan = sys::plan_binding(machine, sys::request_among(ranks, me, 0));
  const sys::BindingReport report = sys::bind_process(plan);
  for (const std::string& failure : report.failures) UNSCOPED_INFO(failure);
  REQUIRE(test::on_every_rank(report.ok && report.process_cpus == plan.share));

  sys::Plan before;
  before.share = ranks[me].mask;
  REQUIRE(test::on_every_rank(sys::bind_process(before).ok));
}

TEST_CASE("the ranks' shares are disjoint wherever there is a core for each") {
  const auto control = test::world().make_control(30);
  const auto ranks = everyone(*control);
  const sys::Machine machine = sys::look_at_machine();
  const auto me = static_cast<std::size_t>(control->rank());
  const sys::Plan plan = sys::plan_binding(machine, sys::request_among(ranks, me, 0));
  std::vector<int> users(4096, 0);
  for (const std::string& share : control->gather(to_string(plan.share), "test: shares"))
    for (int cpu : sys::parse_cpus(share)) ++users.at(static_cast<std::size_t>(cpu));
  const bool same_masks = std::all_of(ranks.begin(), ranks.end(), [&](const sys::LocalRank& rank) {
    return rank.mask == machine.allowed;
  });
  const bool enough = same_masks && ranks.size() <= machine.cores.size();
  REQUIRE(test::on_every_rank(!enough || *std::max_element(users.begin(), users.end()) == 1));
  REQUIRE(test::on_every_rank(!plan.share.empty()));
}
