#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "lockstep/cluster/topology/cpuset.hpp"

namespace lockstep::study {

/// What the system has counted, so far, about who used a rank's cores. Read from files only.
struct MachineState {
  /// Of this process's control group: how often, and for how long, its quota stopped it. The time
  /// is summed over processors. Negative: the system does not count it.
  double throttled_s = -1;
  double steal_s = 0;                ///< the hypervisor's, summed over `cpus`
  std::map<int, double> ran_s;       ///< of each thread of this process
  std::map<int, double> delay_s;     ///< of each thread: it could run, and had no core
  std::map<int, double> others_s;    ///< each foreign process's time
  std::map<int, std::string> names;  ///< of those that were on `cpus` last
  std::uint64_t swapped_pages = 0;   ///< of the whole machine, in and out
  double held_back = -1;             ///< memory.high events of the group; < 0: not counted
};

/// `ours`: the processes of this training on this machine. `root` precedes /proc and /sys.
MachineState look_at_machine(const cluster::CpuSet& cpus, const std::set<int>& ours,
                             const std::filesystem::path& root = "/");

/// What happened between two looks, in seconds.
struct Disturbance {
  double throttled_s = -1, steal_s = 0, delay_s = 0;  ///< delay: of the thread that waited most
  double others_s = 0;
  double ran_s = 0;     ///< of all threads of this process
  std::string busiest;  ///< the foreign process that used most: "make (4711)"
  std::uint64_t swapped_pages = 0;
  double held_back = -1;
  static void fields(auto& self, auto&& visit) {
    visit(self.throttled_s, self.steal_s, self.delay_s, self.others_s, self.ran_s, self.busiest,
          self.swapped_pages, self.held_back);
  }
};
Disturbance between(const MachineState& before, const MachineState& after);

}  // namespace lockstep::study
