#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"

namespace lockstep::cluster {

/// A network interface (/sys/class/net).
struct InterfaceFacts {
  std::string name;
  bool routed = false;  ///< it has an IPv4 network: /proc/net/route names it
};

/// An entry of a port's table of addresses for RoCE.
struct GidFacts {
  int index = 0;
  std::string type;  ///< "RoCE v2"
  std::string gid;   ///< "0000:0000:0000:0000:0000:ffff:0a00:0001"
};

/// A device that speaks verbs (/sys/class/infiniband), by its first port.
struct HcaFacts {
  std::string name, driver;
  bool active = false, ethernet = false;
  std::vector<GidFacts> gids;  ///< the first ones that are set, of Ethernet
};

struct MountFacts {
  std::string path, type, options;
};

/// Names in /proc/self/limits.
inline constexpr std::string_view locked_memory = "Max locked memory",
                                  open_files = "Max open files";

/// What one look at a node's files and at this process's environment shows: all that its facts and
/// its traps are judged by.
struct NodeLook {
  Variables env;
  std::vector<InterfaceFacts> interfaces;
  std::vector<HcaFacts> hcas;
  std::size_t slingshot_cards = 0;  ///< /sys/class/cxi
  std::size_t gpus = 0;             ///< NVIDIA's
  std::string nvidia_driver;        ///< its line in /proc
  std::string kernel;
  std::map<std::string, std::string> drivers;  ///< versions of those that have one
  std::vector<MountFacts> mounts;
  /// Of /proc/self/limits by their names there, soft and hard: a number, or "unlimited".
  std::map<std::string, std::pair<std::string, std::string>, std::less<>> limits;
  CpuSet allowed;
  std::string cpu_flags;                         ///< " fpu vme ... "
  std::string governor, governor_driver;         ///< of the first processor's frequency
  bool filters_calls = false;                    ///< seccomp, as containers have it
  std::map<std::string, std::string> libraries;  ///< of this process: "libmpi" is file and build id
  std::filesystem::path root = "/";              ///< where its files were read

  // What the launch knows; 1 where it is not known.
  int world = 1, nodes = 1, ranks_here = 1;
  std::string mpi;  ///< "Open MPI v4.1.4"; empty without MPI

  /// A variable's value; empty when it is not set.
  std::string value(std::string_view name) const;
  bool has(std::string_view name) const { return env.find(name) != env.end(); }
  bool has_file(const std::filesystem::path& path) const;
  /// A soft limit in its unit; infinity for "unlimited", and where it is not known.
  double limit(std::string_view name) const;
  /// The file system of this path: the mount with the longest name.
  MountFacts mount_of(const std::string& path) const;
};

/// Reads files only; takes some milliseconds. `root` precedes /proc and /sys; another one than "/"
/// has no libraries. What cannot be read is left out.
NodeLook look_at_node(Variables env, const std::filesystem::path& root = "/");

}  // namespace lockstep::cluster
