#include "lockstep/base/cgroup.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The folders of this process's group of a controller ("": all of version 2) and of its parents,
/// up to the tree's top.
std::vector<fs::path> groups_of(const fs::path& root, const std::string& controller) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t one = line.find(':'), two = line.find(':', one + 1);
    if (two == std::string::npos) continue;
    const std::string names = line.substr(one + 1, two - one - 1);
    const std::vector<std::string> listed_names = listed(names);
    if (names != controller &&
        (controller.empty() || std::ranges::find(listed_names, controller) == listed_names.end()))
      continue;
    const fs::path top = root / "sys/fs/cgroup" / names;
    std::vector<fs::path> folders;
    for (fs::path within = fs::path(line.substr(two + 1)).relative_path(); !within.empty();
         within = within.parent_path())
      folders.push_back(top / within);
    folders.push_back(top);
    return folders;
  }
  return {};
}

/// Word `index` of a file as a number; nullopt where it is not one, such as "max".
std::optional<double> number_in(const fs::path& file, std::size_t index = 0) {
  std::ifstream in(file);
  std::string word;
  for (std::size_t i = 0; i <= index; ++i)
    if (!(in >> word)) return {};
  return real_number(word);
}

/// The value after `key` in a file of lines "key value".
std::optional<double> value_in(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  double value = 0;
  for (std::string name; in >> name >> value;)
    if (name == key) return value;
  return {};
}

void take_quota(const fs::path& folder, std::optional<double> quota, std::optional<double> period,
                GroupLimits& limits) {
  if (!quota || !period || *quota <= 0 || *period <= 0 || *quota / *period >= limits.cores) return;
  limits.cores = *quota / *period;
  struct stat found {};
  limits.group = ::stat(folder.c_str(), &found) == 0 ? found.st_ino : 0;
}

void take_throttled(std::optional<double> counted, double unit_s, GroupLimits& limits) {
  if (counted) limits.throttled_s = std::max(limits.throttled_s.value_or(0), *counted * unit_s);
}

void take_memory(std::optional<double> limit, std::optional<double> used,
                 std::optional<double> of_files, GroupLimits& limits) {
  constexpr double no_limit = 0x1p60;  // version 1 has a large number
  if (!limit || *limit >= no_limit) return;
  const double free = *limit - std::max(used.value_or(0) - of_files.value_or(0), 0.0);
  const auto least = [](std::optional<std::uint64_t>& of, double bytes) {
    of = std::min(of.value_or(std::numeric_limits<std::uint64_t>::max()),
                  static_cast<std::uint64_t>(std::max(bytes, 0.0)));
  };
  least(limits.memory_bytes, *limit);
  least(limits.free_bytes, free);
}

}  // namespace

GroupLimits look_at_group(const fs::path& root) {
  GroupLimits limits;
  const std::vector<fs::path> unified = groups_of(root, "");
  for (const fs::path& at : unified) {
    take_quota(at, number_in(at / "cpu.max"), number_in(at / "cpu.max", 1), limits);
    take_throttled(value_in(at / "cpu.stat", "throttled_usec"), 1e-6, limits);
    take_memory(number_in(at / "memory.max"), number_in(at / "memory.current"),
                value_in(at / "memory.stat", "inactive_file"), limits);
  }
  if (!unified.empty()) limits.held_back = value_in(unified.front() / "memory.events", "high");
  for (const fs::path& at : groups_of(root, "cpu")) {
    take_quota(at, number_in(at / "cpu.cfs_quota_us"), number_in(at / "cpu.cfs_period_us"), limits);
    take_throttled(value_in(at / "cpu.stat", "throttled_time"), 1e-9, limits);
  }
  for (const fs::path& at : groups_of(root, "memory"))
    take_memory(number_in(at / "memory.limit_in_bytes"), number_in(at / "memory.usage_in_bytes"),
                value_in(at / "memory.stat", "total_inactive_file"), limits);
  return limits;
}

}  // namespace lockstep
