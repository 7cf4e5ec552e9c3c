// The plan for machines that are not this one: GPUs, cores and network cards of whole nodes.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "tests/unit/cluster/topology_fixture.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using cluster::CpuSet;
using cluster::LocalRank;
using cluster::Machine;
using cluster::Plan;
using cluster::to_string;
using Texts = std::vector<std::string>;

Machine hiding(const Machine& machine, const std::string& cpus) {
  return cluster::without_cpus(machine, cluster::parse_cpus(cpus));
}

/// One rank for each GPU.
std::vector<Plan> plans_by_gpu(const Machine& machine) {
  return plans(machine, machine.gpus.size(), 0, true);
}

template <class Get>
Texts each(const std::vector<Plan>& all, Get get) {
  Texts texts;
  for (const Plan& plan : all) texts.push_back(get(plan));
  return texts;
}

std::string network(const Plan& plan) { return plan.network; }
std::string share(const Plan& plan) { return to_string(plan.share); }
std::string node(const Plan& plan) { return std::to_string(plan.numa_node); }
}  // namespace

TEST_CASE("a rank has as many threads as a quota feeds, and the rest of it for the loader",
          "[topology]") {
  Machine machine;
  for (int core = 0; core < 96; ++core) {
    machine.cores.push_back({core});
    machine.allowed.push_back(core);
  }
  machine.numa.push_back({.os_index = 0, .cpus = machine.allowed});
  const auto plan_with = [&](double quota, std::size_t threads) {
    cluster::PlanRequest request;
    request.quota_cores = quota;
    request.compute_threads = threads;
    return cluster::plan_binding(machine, request);
  };
  const double none = std::numeric_limits<double>::infinity();
  CHECK(plan_with(none, 0).compute.size() == 96);
  CHECK(plan_with(none, 0).remarks.empty());
  CHECK(plan_with(none, 90).spare == 6);
  const Plan eight = plan_with(8, 0);
  CHECK(eight.compute.size() == 8);
  CHECK(eight.spare == 0);
  CHECK(eight.remarks == Texts{"a cgroup's quota gives the time of 8 of 96 cores: 8 threads"});
  CHECK(plan_with(8, 6).spare == 2);
  CHECK(plan_with(1.5, 0).compute.size() == 2);
  CHECK(plan_with(0.2, 0).compute.size() == 1);
  const Plan more = plan_with(8, 32);
  CHECK(more.compute.size() == 32);
  CHECK(more.remarks == Texts{"a cgroup's quota gives the time of 8 of 96 cores: 32 threads, which "
                              "will be stopped at times"});
}

TEST_CASE("a node like a p4d.24xlarge: six cores and the nearest EFA card for each GPU") {
  const auto all = plans_by_gpu(fixture("p4d"));
  CHECK(each(all, share) == Texts{"0-5,48-53", "6-11,54-59", "12-17,60-65", "18-23,66-71",
                                  "24-29,72-77", "30-35,78-83", "36-41,84-89", "42-47,90-95"});
  CHECK(each(all, node) == Texts{"0", "0", "0", "0", "1", "1", "1", "1"});
  CHECK(each(all, network) == Texts{"rdmap16s27", "rdmap16s27", "rdmap32s27", "rdmap32s27",
                                    "rdmap144s27", "rdmap144s27", "rdmap160s27", "rdmap160s27"});
  for (const Plan& plan : all) {
    CHECK(plan.compute.size() == 6);
    CHECK(remarks(plan).empty());
  }
}

TEST_CASE("a cgroup with no core near half of the GPUs: their ranks share the other socket") {
  const auto all = plans_by_gpu(hiding(fixture("p4d"), "0-23,48-71"));
  CHECK(each(all, node) == Texts(8, "1"));
  // The ranks of its four GPUs divide it, and so do the others.
  for (std::size_t rank = 0; rank < 4; ++rank)
    CHECK_THAT(remarks(all[rank]), Contains("(0-23,48-71) is allowed (24-47,72-95)"));
  for (std::size_t rank = 4; rank < 8; ++rank)
    CHECK_THAT(remarks(all[rank]), !Contains("no CPU near"));
  // The card is the GPU's, wherever the cores are.
  CHECK(all[0].network == "rdmap16s27");
}

TEST_CASE("hiding one hyperthread of each core leaves as many compute threads") {
  for (const Plan& plan : plans_by_gpu(hiding(fixture("p4d"), "48-95"))) {
    CHECK(plan.share.size() == 6);
    CHECK(plan.compute.size() == 6);
  }
}

TEST_CASE("GPU memory that is listed as NUMA nodes holds no rank, with CPUs or without") {
  const Machine machine = fixture("grace-hopper");
  REQUIRE(machine.numa.size() == 2);
  const auto all = plans_by_gpu(machine);
  CHECK(each(all, share) == Texts{"0-5", "6-11"});
  CHECK(each(all, node) == Texts{"0", "1"});
  CHECK(each(all, network) == Texts{"mlx5_0 (ib0)", "mlx5_1 (ib1)"});
}

TEST_CASE("ranks without GPUs take a card near their cores, in turn where several are as near") {
  const Machine machine = fixture("p4d");
  CHECK(each(plans(machine, 2), network) == Texts{"rdmap16s27", "rdmap160s27"});
  CHECK(each(plans(machine, 4), network) ==
        Texts{"rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27"});
}

TEST_CASE("a card that is down is passed over, and one that speaks no verbs where one does") {
  Machine machine = fixture("p4d");
  CHECK(machine.networks.size() == 5);
  for (cluster::NetworkCard& card : machine.networks) card.up = card.name != "rdmap16s27";
  CHECK(plans_by_gpu(machine)[0].network == "rdmap32s27");
  for (cluster::NetworkCard& card : machine.networks) card.up = card.name == "ens5";
  CHECK(plans_by_gpu(machine)[0].network == "ens5");
  for (cluster::NetworkCard& card : machine.networks) card.up = false;
  CHECK_THAT(remarks(plans_by_gpu(machine)[0]), Contains("rdmap16s27 is down"));
  machine.networks.clear();
  CHECK(plans_by_gpu(machine)[0].network.empty());
}

TEST_CASE(
    "GPUs with several cards as near take turns, and a card on the other socket is reported") {
  Machine machine = fixture("eight-gpus");
  for (const char* name : {"a", "b"})
    machine.networks.push_back(
        {name, "", true, true, machine.gpus[0].near_cpus, machine.gpus[0].path});
  const auto all = plans_by_gpu(machine);
  CHECK(each(all, network) == Texts{"a", "b", "a", "b", "a", "b", "a", "b"});
  CHECK(remarks(all[3]).empty());
  CHECK_THAT(remarks(all[4]), Contains("no network card is near GPU 0000:50:00.0: a is near CPUs "
                                       "0-5,12-17"));
}

TEST_CASE("this machine's own cards are among what the system lists") {
  for (const cluster::NetworkCard& card : cluster::look_at_machine().networks) {
    INFO(card.name);
    CHECK_FALSE(card.pci_bus_id.empty());
    CHECK_FALSE(card.name.starts_with("lo"));
  }
}

TEST_CASE("CPUs that are not there cannot be hidden, nor can all") {
  const Machine machine = fixture("smt");
  CHECK_THROWS_WITH(hiding(machine, "6-9"),
                    Contains("CPUs 8-9 cannot be hidden") && Contains("the machine has 0-7"));
  CHECK_THROWS_WITH(hiding(machine, "0-7"), Contains("hiding CPUs 0-7 leaves none"));
  CHECK_THROWS_AS(hiding(machine, "0-7"), InputError);
  CHECK(to_string(hiding(machine, "").allowed) == "0-7");
  CHECK(to_string(hiding(machine, "0,4").allowed) == "1-3,5-7");
}

TEST_CASE("real machines: each GPU's card is as near as any") {
  for (const char* name : {"dgx2", "power8-4gpu", "epyc-9654-2s"}) {
    const std::optional<Machine> found = shared_machine(name);
    if (!found) return;
    const Machine& machine = *found;
    INFO(name);
    if (machine.gpus.empty()) continue;
    for (const Plan& plan : plans_by_gpu(machine)) {
      CHECK(plan.network.empty() == machine.networks.empty());
      CHECK_THAT(remarks(plan), !Contains("no network card is near GPU"));
    }
  }
}

TEST_CASE("many times as many threads as cores are an error that names both") {
  const Machine machine = fixture("grace-hopper");
  const auto planned = [&](std::size_t threads) { return plans(machine, 1, threads).front(); };
  const std::size_t cores = planned(0).compute.size();
  CHECK_NOTHROW(planned(16 * cores));
  CHECK_THROWS_WITH(planned(16 * cores + 1),
                    Contains(fmt::format("threads = {}", 16 * cores + 1)) && Contains("cores"));
}
