#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

namespace lockstep {

/// What the cgroups of this process and their parents allow and have counted, in versions 1 and 2
/// (the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst). In a container its own
/// group is the top of the tree.
struct GroupLimits {
  /// Cores whose time all processes of the group may use together; infinity: as many as there are.
  double cores = std::numeric_limits<double>::infinity();
  /// The group with that quota: equal for processes that share it. 0: none has one.
  std::uint64_t group = 0;
  std::optional<std::uint64_t> memory_bytes;  ///< that it may hold; nullopt: no limit
  /// Of these, what is not used, or only by copies of files; nullopt: no limit.
  std::optional<std::uint64_t> free_bytes;
  std::optional<double> throttled_s;  ///< stopped so far because the quota was used up
  std::optional<double> held_back;    ///< how often at its limit of memory, in version 2
};

/// Never throws: what cannot be read sets no limit. `root`: where /proc and /sys are.
GroupLimits look_at_group(const std::filesystem::path& root = "/");

}  // namespace lockstep
