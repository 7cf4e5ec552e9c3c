#include <atomic>
#include <thread>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "lockstep/observe/binding_record.hpp"

namespace {

using namespace lockstep;
using Catch::Matchers::Contains;
using cluster::CpuSet;

/// Restores the process's CPUs.
class Restore {
 public:
  Restore() : before_(cluster::current_cpus()) {}
  ~Restore() {
    cluster::Plan plan;
    plan.share = before_;
    cluster::bind_process(plan);
  }
  const CpuSet& before() const { return before_; }

 private:
  CpuSet before_;
};

}  // namespace

TEST_CASE("a bound thread runs only on its CPUs, and the other threads where they did") {
  const CpuSet before = cluster::current_cpus();
  CpuSet seen;
  std::thread([&] {
    cluster::bind_thread({before.back()});
    seen = cluster::current_cpus();
  }).join();
  CHECK(seen == CpuSet{before.back()});
  CHECK(cluster::current_cpus() == before);
}

TEST_CASE("binding to CPUs that do not exist names them and the reason") {
  CHECK_THROWS_WITH(cluster::bind_thread({9000, 9001}),
                    Contains("9000-9001") && Contains("Invalid argument"));
  CHECK_THROWS_WITH(cluster::bind_thread({}), Contains("Invalid argument"));
}

TEST_CASE("binding the process moves every thread that it has, verified by reading back") {
  const Restore restore;
  std::atomic<bool> bound = false;
  CpuSet seen;
  std::thread other([&] {
    bound.wait(false);
    seen = cluster::current_cpus();
  });
  cluster::Plan plan;
  plan.share = {restore.before().back()};
  plan.numa_node = -1;
  const cluster::BindingReport report = cluster::bind_process(plan);
  bound = true;
  bound.notify_all();
  other.join();
  CHECK(report.ok);
  CHECK(report.failures.empty());
  CHECK(report.process_cpus == plan.share);
  CHECK(cluster::current_cpus() == plan.share);
  CHECK(seen == plan.share);
}

TEST_CASE("this machine's own plan passes its verification") {
  const Restore restore;
  const cluster::Machine machine = cluster::look_at_machine();
  const cluster::Plan plan = cluster::plan_binding(machine, {});
  const cluster::BindingReport report = cluster::bind_process(plan);
  for (const std::string& failure : report.failures) UNSCOPED_INFO(failure);
  CHECK(report.ok);
  if (plan.numa_node >= 0 && report.memory_node >= 0) CHECK(report.memory_node == plan.numa_node);
}

TEST_CASE("a plan that cannot be had fails in the report, not by an exception") {
  const Restore restore;
  cluster::Plan plan;
  plan.share = {9000};
  const cluster::BindingReport report = cluster::bind_process(plan);
  CHECK_FALSE(report.ok);
  CHECK(report.process_cpus == restore.before());
  REQUIRE_FALSE(report.failures.empty());
  CHECK_THAT(report.failures[0], Contains("9000"));
}

TEST_CASE("a plan for another machine is never bound") {
  const auto machine = cluster::look_at_machine("tests/fixtures/topologies/two-sockets.xml");
  const CpuSet before = cluster::current_cpus();
  CHECK_THROWS_AS(cluster::bind_process(cluster::plan_binding(machine, {})), Error);
  CHECK(cluster::current_cpus() == before);
}

TEST_CASE("memory cannot be bound to a NUMA node that does not exist") {
  CHECK_THROWS_WITH(cluster::bind_memory(1000), Contains("NUMA node 1000"));
}

TEST_CASE("a binding report tells a human and a script the same") {
  cluster::BindingReport report;
  report.plan.share = {4, 5, 6, 7};
  report.plan.numa_node = 1;
  report.plan.compute = {{4}, {5}, {6}};
  report.plan.loader = {7};
  report.plan.remarks = {"a remark"};
  report.process_cpus = {4, 5, 6, 7};
  report.memory_node = 0;
  report.failures = {"a new page is on NUMA node 0, not on 1"};
  cluster::RankInfo rank;
  rank.rank = 3;
  rank.world = 4;
  rank.host = "node7";
  CHECK(describe(report, rank) ==
        "rank 3 on node7: CPUs 4-7, NUMA node 1, 3 compute threads on 4-6, loader on 7: FAIL; "
        "a new page is on NUMA node 0, not on 1; a remark");
  const auto json = nlohmann::json::parse(fields_to_json(observe::rank_binding(report, rank)));
  CHECK(json["rank"] == 3);
  CHECK(json["host"] == "node7");
  CHECK(json["compute"] == nlohmann::json{"4", "5", "6"});
  CHECK(json["loader"] == "7");
  CHECK(json["memory_node"] == 0);
  CHECK(json["ok"] == false);
  CHECK(json["failures"].size() == 1);
  CHECK(nlohmann::json::parse(fields_to_json(observe::rank_binding(report.plan, rank)))["ok"]
            .is_null());
}
