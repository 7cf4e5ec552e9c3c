#include <algorithm>

#include <catch2/catch.hpp>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "tests/support/harness/mpi_world.hpp"

namespace {

using namespace lockstep;
using cluster::to_string;

/// All ranks of a test run on one machine.
std::vector<cluster::LocalRank> everyone(comm::Control& control) {
  std::vector<cluster::LocalRank> ranks;
  for (const std::string& mask : control.gather(to_string(cluster::current_cpus()), "test: masks"))
    ranks.push_back({cluster::parse_cpus(mask), ""});
  return ranks;
}

}  // namespace

TEST_CASE("every rank is bound to its share and reads it back") {
  const auto control = test::make_control(30);
  const auto ranks = everyone(*control);
  const auto me = static_cast<std::size_t>(control->rank());
  const cluster::Machine machine = cluster::look_at_machine();
  const cluster::Plan plan = cluster::plan_binding(machine, cluster::request_among(ranks, me, 0));
  const cluster::BindingReport report = cluster::bind_process(plan);
  for (const std::string& failure : report.failures) UNSCOPED_INFO(failure);
  REQUIRE(test::on_every_rank(report.ok && report.process_cpus == plan.share));

  cluster::Plan before;
  before.share = ranks[me].mask;
  REQUIRE(test::on_every_rank(cluster::bind_process(before).ok));
}

TEST_CASE("the ranks' shares are disjoint wherever there is a core for each") {
  const auto control = test::make_control(30);
  const auto ranks = everyone(*control);
  const cluster::Machine machine = cluster::look_at_machine();
  const auto me = static_cast<std::size_t>(control->rank());
  const cluster::Plan plan = cluster::plan_binding(machine, cluster::request_among(ranks, me, 0));
  std::vector<int> users(4096, 0);
  for (const std::string& share : control->gather(to_string(plan.share), "test: shares"))
    for (int cpu : cluster::parse_cpus(share)) ++users.at(static_cast<std::size_t>(cpu));
  const bool same_masks =
      std::all_of(ranks.begin(), ranks.end(),
                  [&](const cluster::LocalRank& rank) { return rank.mask == machine.allowed; });
  const bool enough = same_masks && ranks.size() <= machine.cores.size();
  REQUIRE(test::on_every_rank(!enough || *std::max_element(users.begin(), users.end()) == 1));
  REQUIRE(test::on_every_rank(!plan.share.empty()));
}
