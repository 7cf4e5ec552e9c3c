#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/unit/cluster/topology_fixture.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using cluster::CpuSet;
using cluster::LocalRank;
using cluster::Machine;
using cluster::Plan;
using cluster::plan_binding;
using cluster::request_among;
using cluster::to_string;

std::vector<std::string> shares(const std::vector<Plan>& all) {
  std::vector<std::string> texts;
  for (const Plan& plan : all) texts.push_back(to_string(plan.share));
  return texts;
}

CpuSet joined(const std::vector<CpuSet>& sets) {
  CpuSet all;
  for (const CpuSet& set : sets) all.insert(all.end(), set.begin(), set.end());
  std::sort(all.begin(), all.end());
  return all;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a CPU set survives the way through its text") {
  for (const CpuSet& set : {CpuSet{}, CpuSet{0}, CpuSet{0, 1, 2}, CpuSet{0, 2, 3, 9}, CpuSet{1023}})
    CHECK(cluster::parse_cpus(to_string(set)) == set);
  CHECK(to_string(CpuSet{0, 1, 2, 3, 8}) == "0-3,8");
  for (const char* junk :
       {"a", "1-", "-1", "3-1", "1,,2", "1,", ",1", "2,1", "1 ", "0-9999999999", "0x1", "1-2-3"})
    CHECK_THROWS_AS(cluster::parse_cpus(junk), InputError);
}

TEST_CASE("only NUMA nodes that have CPUs count") {
  const Machine machine = fixture("gpu-memory-node");
  REQUIRE(machine.numa.size() == 1);
  CHECK(machine.numa[0].os_index == 0);
  CHECK(to_string(machine.numa[0].cpus) == "0-3");
  CHECK(machine.numa[0].bytes == 64ull << 30);
  CHECK(plans(machine, 1, 0, true)[0].numa_node == 0);
}

TEST_CASE("GPUs are listed by PCI bus id with their locality, an on-board console is not a GPU") {
  const Machine machine = fixture("eight-gpus");
  CHECK(machine.model == "Example CPU");
  REQUIRE(machine.gpus.size() == 8);
  for (std::size_t gpu = 0; gpu < 8; ++gpu) {
    CHECK(machine.gpus[gpu].pci_bus_id == "0000:" + std::to_string(10 * (gpu + 1)) + ":00.0");
    CHECK(to_string(machine.gpus[gpu].near_cpus) == (gpu < 4 ? "0-5,12-17" : "6-11,18-23"));
  }
}

TEST_CASE("a file that is not a topology is an error that names it") {
  const auto refused = [](const std::string& path) {
    CHECK_THROWS_WITH(cluster::look_at_machine(path), Contains(path));
    CHECK_THROWS_AS(cluster::look_at_machine(path), InputError);
  };
  refused("no-such-file.xml");
  refused("tests/fixtures");
  const test::Folder folder;
  const auto path = folder.path / "not-a-topology.xml";
  for (const char* text : {"", "hello", "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n"}) {
    std::ofstream(path) << text;
    refused(path);
  }
}

TEST_CASE("an environment that names another machine is an error, a file given by name is not") {
  setenv("HWLOC_XMLFILE", "tests/fixtures/topologies/eight-gpus.xml", 1);
  CHECK_THROWS_WITH(cluster::look_at_machine(), Contains("unset HWLOC_XMLFILE="));
  CHECK(fixture("smt").cores.size() == 4);
  unsetenv("HWLOC_XMLFILE");
  CHECK_FALSE(cluster::look_at_machine().foreign);
}

TEST_CASE("this machine's cores hold its allowed CPUs, and those this process runs on") {
  const Machine machine = cluster::look_at_machine();
  const CpuSet cores = joined(machine.cores);
  const CpuSet now = cluster::current_cpus();
  CHECK(std::includes(cores.begin(), cores.end(), machine.allowed.begin(), machine.allowed.end()));
  CHECK(std::includes(machine.allowed.begin(), machine.allowed.end(), now.begin(), now.end()));
}

TEST_CASE("without GPUs ranks divide the cores in NUMA order, evenly to one core") {
  const Machine machine = fixture("two-sockets");
  CHECK(shares(plans(machine, 1)) == Texts{"0-7"});
  CHECK(shares(plans(machine, 2)) == Texts{"0-3", "4-7"});
  CHECK(shares(plans(machine, 4)) == Texts{"0-1", "2-3", "4-5", "6-7"});
  CHECK(shares(plans(machine, 8)) == Texts{"0", "1", "2", "3", "4", "5", "6", "7"});
  CHECK(plans(machine, 2)[1].numa_node == 1);
  CHECK(plans(machine, 1)[0].numa_node == -1);
  CHECK_THAT(remarks(plans(machine, 1)[0]), Contains("spans NUMA nodes"));
}

TEST_CASE("shares are disjoint, cover the allowed cores and differ by at most one core") {
  for (const char* name : {"two-sockets", "eight-gpus", "eight-gpus-cpuset", "smt"}) {
    const Machine machine = fixture(name);
    for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
      INFO(name << " " << ranks);
      std::vector<CpuSet> sets;
      std::size_t least = 1000, most = 0;
      for (const Plan& plan : plans(machine, ranks)) {
        sets.push_back(plan.share);
        least = std::min(least, plan.compute.size());
        most = std::max(most, plan.compute.size());
      }
      CHECK(joined(sets) == machine.allowed);
      CHECK(most - least <= 1);
    }
  }
}

TEST_CASE("one compute thread for each physical core, siblings go with their core") {
  const Plan plan = plans(fixture("smt"), 2)[1];
  CHECK(to_string(plan.share) == "2-3,6-7");
  CHECK(plan.compute == std::vector<CpuSet>{{2, 6}, {3, 7}});
  CHECK(plan.loader_shares_cores);
  CHECK(plan.loader == plan.share);
}

TEST_CASE("the loader gets the spare cores of a share, else it shares them") {
  const Plan spare = plans(fixture("smt"), 1, 3)[0];
  CHECK(spare.compute == std::vector<CpuSet>{{0, 4}, {1, 5}, {2, 6}});
  CHECK(to_string(spare.loader) == "3,7");
  CHECK_FALSE(spare.loader_shares_cores);
  const Plan crowded = plans(fixture("smt"), 1, 6)[0];
  CHECK(crowded.compute.size() == 6);
  CHECK(crowded.loader_shares_cores);
  CHECK_THAT(remarks(crowded), Contains("6 compute threads share 4 cores"));
}

TEST_CASE("more ranks than cores share them, and say so") {
  const auto all = plans(fixture("smt"), 6);
  for (const Plan& plan : all) {
    CHECK(plan.compute.size() == 1);
    CHECK_THAT(remarks(plan), Contains("6 ranks on 4 cores"));
  }
  CHECK(all[0].share == all[1].share);
}

TEST_CASE("ranks whose GPUs share a NUMA domain split its cores") {
  const auto all = plans(fixture("eight-gpus"), 8, 0, true);
  CHECK(shares(all) == Texts{"0,12", "1-2,13-14", "3,15", "4-5,16-17", "6,18", "7-8,19-20", "9,21",
                             "10-11,22-23"});
  CHECK(all[3].numa_node == 0);
  CHECK(all[4].numa_node == 1);
  CHECK(all[4].gpu_pci_bus_id == "0000:50:00.0");
  CHECK(remarks(all[0]).empty());
}

TEST_CASE("two ranks on GPUs of one domain leave the other domain alone") {
  CHECK(shares(plans(fixture("eight-gpus"), 2, 0, true)) == Texts{"0-2,12-14", "3-5,15-17"});
}

TEST_CASE("a GPU without allowed CPUs near it keeps what the scheduler gave, naming both sets") {
  const auto all = plans(fixture("eight-gpus-cpuset"), 8, 0, true);
  std::vector<CpuSet> sets;
  for (const Plan& plan : all) {
    sets.push_back(plan.share);
    CHECK(plan.numa_node == 1);
  }
  CHECK_THAT(remarks(all[0]), Contains("no CPU near GPU 0000:10:00.0 (0-5,12-17) is allowed "
                                       "(6-11,18-23)"));
  CHECK_THAT(remarks(all[7]), !Contains("no CPU near"));
  // Eight ranks on six cores: every core has a rank, none has more than two.
  for (std::size_t core = 6; core < 12; ++core) {
    const auto users = std::count_if(sets.begin(), sets.end(), [&](const CpuSet& set) {
      return std::count(set.begin(), set.end(), core) > 0;
    });
    CHECK(users >= 1);
    CHECK(users <= 2);
  }
}

TEST_CASE("a GPU that is not in the description gets a remark") {
  cluster::PlanRequest request;
  request.gpu_pci_bus_id = "0000:99:00.0";
  const Plan plan = cluster::plan_binding(fixture("two-sockets"), request);
  CHECK(to_string(plan.share) == "0-7");
  CHECK_THAT(remarks(plan), Contains("0000:99:00.0 is not in the machine's description"));
}

TEST_CASE("a launcher that has divided the machine is obeyed") {
  const Machine machine = fixture("two-sockets");
  const std::vector<LocalRank> local{{{0, 1}, ""}, {{4, 5, 6}, ""}};
  CHECK(to_string(plan_binding(machine, request_among(local, 0, 0)).share) == "0-1");
  const Plan plan = plan_binding(machine, request_among(local, 1, 0));
  CHECK(to_string(plan.share) == "4-6");
  CHECK_THAT(remarks(plan), Contains("uses 5 of 8 allowed cores (0-1,4-6)"));
}

TEST_CASE("ranks that came with the same mask divide it") {
  const Machine machine = fixture("two-sockets");
  const CpuSet first{0, 1, 2, 3}, second{4, 5, 6, 7};
  const std::vector<LocalRank> local{{first, ""}, {second, ""}, {first, ""}, {second, ""}};
  Texts got;
  for (std::size_t rank = 0; rank < 4; ++rank)
    got.push_back(to_string(plan_binding(machine, request_among(local, rank, 0)).share));
  CHECK(got == Texts{"0-1", "4-5", "2-3", "6-7"});
  const std::vector<LocalRank> narrow{{{2, 3}, ""}, {{2, 3}, ""}};
  CHECK(to_string(plan_binding(machine, request_among(narrow, 1, 0)).share) == "3");
}

TEST_CASE("a divided rank with a GPU uses what its mask has near it") {
  const Machine machine = fixture("eight-gpus");
  const std::vector<LocalRank> local{{{4, 5, 6, 7}, "0000:10:00.0"}, {{8, 9}, "0000:20:00.0"}};
  CHECK(to_string(plan_binding(machine, request_among(local, 0, 0)).share) == "4-5");
  const Plan far = plan_binding(machine, request_among(local, 1, 0));
  CHECK(to_string(far.share) == "8-9");
  CHECK_THAT(remarks(far), Contains("(0-5,12-17) is allowed (8-9): kept 8-9"));
}

TEST_CASE("a launcher whose binding uses every core gets no remark") {
  const std::vector<LocalRank> local{{{0, 4}, ""}, {{1, 2, 3, 5, 6, 7}, ""}};
  CHECK(remarks(plan_binding(fixture("smt"), request_among(local, 1, 0))).empty());
}

TEST_CASE("a rank with no GPU core left shares with the others, and says with whom") {
  const Machine machine = fixture("eight-gpus");
  std::vector<LocalRank> local;
  for (const char* gpu : {"0000:10:00.0", "0000:50:00.0", ""}) local.push_back({{}, gpu});
  CHECK(to_string(plan_binding(machine, request_among(local, 0, 0)).share) == "0-5,12-17");
  const Plan third = plan_binding(machine, request_among(local, 2, 0));
  CHECK(third.share == machine.allowed);
  CHECK_THAT(remarks(third), Contains("shares CPUs with local ranks 0, 1"));
}

TEST_CASE("a rank bound to one core by mpirun's default is told how to get the others") {
  const Machine machine = fixture("two-sockets");
  const Plan plan = plan_binding(machine, request_among({{{5}, ""}}, 0, 0));
  CHECK(to_string(plan.share) == "5");
  CHECK_THAT(remarks(plan), Contains("--bind-to none"));
}

TEST_CASE("a mask outside the allowed CPUs is an error with both sets") {
  const Machine machine = fixture("eight-gpus-cpuset");
  CHECK_THROWS_WITH(plan_binding(machine, request_among({{{0, 1}, ""}}, 0, 0)),
                    Contains("(0-1)") && Contains("(6-11,18-23)"));
}

TEST_CASE("a DGX-2 with fewer allowed cores than GPUs") {
  const auto machine = shared_machine("dgx2");
  if (!machine) return;
  REQUIRE(machine->gpus.size() == 16);
  CHECK(machine->gpus[0].name == "Tesla V100-SXM3-32GB-H");
  CHECK(machine->gpus[0].pci_bus_id == "0000:34:00.0");
  CHECK(to_string(machine->allowed) == "0-1,24-25");
  const auto all = plans(*machine, 16, 0, true);
  for (std::size_t rank = 0; rank < 16; ++rank) {
    CHECK(all[rank].numa_node == (rank < 8 ? 0 : 1));
    CHECK(all[rank].share.size() == 1);
    CHECK_THAT(remarks(all[rank]), Contains("8 ranks on 2 cores"));
  }
}

TEST_CASE("an EPYC machine without GPUs: a rank for each of its 192 cores") {
  const auto machine = shared_machine("epyc-9654-2s");
  if (!machine) return;
  CHECK(machine->gpus.empty());
  CHECK(machine->cores.size() == 192);
  CHECK(machine->model == "AMD EPYC 9654 96-Core Processor");
  std::vector<CpuSet> sets;
  for (const Plan& plan : plans(*machine, 192)) {
    CHECK(plan.compute.size() == 1);
    sets.push_back(plan.share);
  }
  CHECK(joined(sets) == machine->allowed);
}

TEST_CASE("a POWER8 machine with 4 GPUs on 2 NUMA nodes and scattered CPU numbers") {
  const auto machine = shared_machine("power8-4gpu");
  if (!machine) return;
  REQUIRE(machine->gpus.size() == 4);
  CHECK(machine->gpus[2].pci_bus_id == "000a:01:00.0");
  CHECK(shares(plans(*machine, 4, 0, true)) ==
        Texts{"0-1,8-9", "16-17,24-25", "80-81,88-89", "96-97,104-105"});
}
