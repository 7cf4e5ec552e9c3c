#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/traps/traps.hpp"

namespace lockstep::cluster {

/// What is wrong, and the line that cures it.
struct Trapped {
  std::string text, line;
};

using Found = std::optional<Trapped>;

/// An entry of the table. `find` is asked on each node; it must find nothing in the same facts
/// after its line.
struct Trap {
  enum class Sure { certain, perhaps };
  enum class Reads { settings, files };  ///< the environment and the launch alone, or more
  const char* name;
  const char* report;
  Sure sure;
  Reads reads;
  Found (*find)(const NodeLook& look);
};

constexpr auto certain = Trap::Sure::certain, perhaps = Trap::Sure::perhaps;
constexpr auto settings = Trap::Reads::settings, files = Trap::Reads::files;

/// The parts of the table.
std::span<const Trap> cuda_traps();
std::span<const Trap> nccl_traps();
std::span<const Trap> mpi_traps();
std::span<const Trap> job_traps();

/// "export NAME=VALUE", with the value as a shell needs it.
std::string exported(std::string_view name, std::string_view value);
/// "unset NAME ..."
std::string unset(const std::vector<std::string>& names);

/// A list of names as NCCL reads it: "^" leaves out, "=" is exact, else each is a beginning; a port
/// may follow a colon.
struct NcclNames {
  bool without = false, exact = false;
  std::vector<std::string> names;
  bool selects(std::string_view name) const;
};
NcclNames read_nccl_names(std::string_view text);

/// The version in "Open MPI v4.1.4"; nothing for other libraries.
std::optional<int> open_mpi_major(const NodeLook& look);
/// Ranks on GPUs that NCCL connects.
bool joins_gpus(const NodeLook& look);
bool joins_nodes(const NodeLook& look);
/// Devices whose cable has a partner: InfiniBand or Ethernet, not EFA.
std::vector<HcaFacts> active_hcas(const NodeLook& look);
bool has_efa(const NodeLook& look);
/// "docker0,virbr0" of the interfaces that lead only to this machine's containers and guests.
std::vector<std::string> bridges(const NodeLook& look);

}  // namespace lockstep::cluster
