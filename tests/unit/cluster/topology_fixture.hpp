#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/machine.hpp"

namespace lockstep::test {

inline cluster::Machine fixture(const std::string& name) {
  return cluster::look_at_machine("tests/fixtures/topologies/" + name + ".xml");
}

/// A machine from ../shared/topologies, which not every checkout has next to it.
inline std::optional<cluster::Machine> shared_machine(const std::string& name) {
  const std::string path = "../shared/topologies/" + name + ".xml";
  if (std::filesystem::exists(path)) return cluster::look_at_machine(path);
  std::printf("SKIPPED: %s is not there\n", path.c_str());
  return std::nullopt;
}

/// The plans of all local ranks; every rank came with all allowed CPUs.
inline std::vector<cluster::Plan> plans(const cluster::Machine& machine, std::size_t ranks,
                                        std::size_t threads = 0, bool gpus = false) {
  std::vector<cluster::LocalRank> local(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    local[rank] = {machine.allowed, gpus ? machine.gpus.at(rank).pci_bus_id : ""};
  std::vector<cluster::Plan> all;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    all.push_back(cluster::plan_binding(machine, cluster::request_among(local, rank, threads)));
  return all;
}

inline std::string remarks(const cluster::Plan& plan) {
  std::string text;
  for (const std::string& remark : plan.remarks) text += remark + "\n";
  return text;
}

}  // namespace lockstep::test
