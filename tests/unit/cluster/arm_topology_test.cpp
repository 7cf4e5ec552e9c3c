#include <fstream>

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "lockstep/cluster/topology/pages.hpp"
#include "tests/unit/cluster/topology_fixture.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using cluster::Machine;
using cluster::Plan;

using Lines = std::vector<std::string>;

Lines told(const std::vector<Plan>& all) {
  Lines lines;
  for (const Plan& plan : all)
    lines.push_back(fmt::format("{} ({} threads), memory {}{}{}, {}",
                                cluster::to_string(plan.share), plan.compute.size(), plan.numa_node,
                                plan.gpu_pci_bus_id.empty() ? "" : ", ", plan.gpu_pci_bus_id,
                                plan.network));
  return lines;
}

/// The nodes that the machine's description has, by what it calls a node.
std::size_t nodes_described(const std::string& name) {
  std::ifstream file("tests/fixtures/topologies/" + name + ".xml");
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find("NUMANode") != line.npos;
  return count;
}

}  // namespace

TEST_CASE("a GH200: its cores, its memory, and none of the eight nodes of its GPU") {
  const Machine machine = fixture("gh200");
  CHECK(nodes_described("gh200") == 9);
  CHECK(machine.model == "Neoverse V2");
  CHECK(machine.numa.size() == 1);
  CHECK(told(plans(machine, 1, 0, true)) ==
        Lines{"0-71 (72 threads), memory 0, 0009:01:00.0, mlx5_0 (ib0)"});
  CHECK(told(plans(machine, 2)) == Lines{"0-35 (36 threads), memory 0, mlx5_0 (ib0)",
                                         "36-71 (36 threads), memory 0, mlx5_0 (ib0)"});
}

TEST_CASE("four GH200 have 36 NUMA nodes, and each rank its processor's memory") {
  const Machine machine = fixture("gh200-four");
  CHECK(nodes_described("gh200-four") == 36);
  CHECK(machine.numa.size() == 4);
  CHECK(told(plans(machine, 4, 0, true)) ==
        Lines{"0-71 (72 threads), memory 0, 0009:01:00.0, mlx5_0 (ib0)",
              "72-143 (72 threads), memory 1, 0019:01:00.0, mlx5_1 (ib1)",
              "144-215 (72 threads), memory 2, 0029:01:00.0, mlx5_2 (ib2)",
              "216-287 (72 threads), memory 3, 0039:01:00.0, mlx5_3 (ib3)"});
}

TEST_CASE("on a tray of GB200 two ranks divide a processor") {
  const Machine machine = fixture("gb200");
  CHECK(nodes_described("gb200") == 34);
  CHECK(machine.numa.size() == 2);
  CHECK(told(plans(machine, 4, 0, true)) ==
        Lines{"0-35 (36 threads), memory 0, 0008:01:00.0, mlx5_0 (ib0)",
              "36-71 (36 threads), memory 0, 0009:01:00.0, mlx5_1 (ib1)",
              "72-107 (36 threads), memory 1, 0018:01:00.0, mlx5_2 (ib2)",
              "108-143 (36 threads), memory 1, 0019:01:00.0, mlx5_3 (ib3)"});
}

TEST_CASE("a Grace superchip: a rank for each processor, and one card for both") {
  const Machine machine = fixture("grace-grace");
  const auto two = plans(machine, 2);
  CHECK(told(two) == Lines{"0-71 (72 threads), memory 0, mlx5_0 (ib0)",
                           "72-143 (72 threads), memory 1, mlx5_0 (ib0)"});
  CHECK_THAT(remarks(two[1]), Contains("no network card is near the share"));
  CHECK_THAT(remarks(plans(machine, 1)[0]), Contains("spans NUMA nodes"));
}

TEST_CASE("a Graviton 3 has one NUMA node and a card by its interface's name") {
  const Machine machine = fixture("graviton3");
  CHECK(machine.model == "Neoverse V1");
  CHECK(told(plans(machine, 1)) == Lines{"0-63 (64 threads), memory 0, ens5"});
  CHECK(told(plans(machine, 3, 16)) == Lines{"0-20 (16 threads), memory 0, ens5",
                                             "21-41 (16 threads), memory 0, ens5",
                                             "42-63 (16 threads), memory 0, ens5"});
}

TEST_CASE("the four groups of an A64FX are four NUMA nodes") {
  const Machine machine = fixture("a64fx");
  CHECK(machine.model == "A64FX");
  CHECK(told(plans(machine, 4)) == Lines{"0-11 (12 threads), memory 0, mlx5_0 (ib0)",
                                         "12-23 (12 threads), memory 1, mlx5_0 (ib0)",
                                         "24-35 (12 threads), memory 2, mlx5_0 (ib0)",
                                         "36-47 (12 threads), memory 3, mlx5_0 (ib0)"});
}

TEST_CASE("no number of ranks gives one the memory of a GPU, and pages there are reported") {
  for (const auto& [name, gpus] : std::vector<std::pair<std::string, std::vector<int>>>{
           {"gh200", {1}}, {"gh200-four", {4, 12, 20, 28}}, {"gb200", {2, 10, 18, 26}}}) {
    const Machine machine = fixture(name);
    for (std::size_t ranks = 1; ranks <= 8; ++ranks)
      for (const Plan& plan : plans(machine, ranks)) {
        INFO(name << " " << ranks);
        CHECK(plan.numa_node < static_cast<int>(machine.numa.size()));
        if (plan.numa_node < 0) continue;
        for (const int gpu : gpus)
          CHECK_THAT(cluster::judge_pages("pinned", {{gpu, 1}}, plan.numa_node).value_or(""),
                     Contains(fmt::format("on NUMA node {}, not on {}", gpu, plan.numa_node)));
      }
  }
}
