#include "study/doctor/machine_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/cgroup.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

double tick_s() { return 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)); }

int number_of(const fs::path& path) {
  return whole_number<int>(path.filename().string()).value_or(-1);
}

/// The value after `key` in a file of lines "key value"; negative without one.
double value_in(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string name;
  double value = 0;
  while (in >> name >> value)
    if (name == key) return value;
  return -1;
}

double steal_of(const cluster::CpuSet& cpus, const fs::path& root) {
  std::ifstream in(root / "proc/stat");
  double ticks = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name.size() < 4 || !name.starts_with("cpu")) continue;
    const int cpu = number_of(name.substr(3));
    if (!std::binary_search(cpus.begin(), cpus.end(), cpu)) continue;
    double value = 0;
    for (int column = 0; column < 8; ++column) words >> value;
    ticks += value;
  }
  return ticks * tick_s();
}

void add_threads(MachineState& state, const fs::path& root) {
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(root / "proc/self/task", gone)) {
    std::ifstream in(entry.path() / "schedstat");
    double ran_ns = 0, waited_ns = 0;
    if (!(in >> ran_ns >> waited_ns)) continue;
    const int thread = number_of(entry.path());
    state.ran_s[thread] = ran_ns * 1e-9;
    state.delay_s[thread] = waited_ns * 1e-9;
  }
}

void add_others(MachineState& state, const cluster::CpuSet& cpus, const std::set<int>& ours,
                const fs::path& root) {
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(root / "proc", gone)) {
    const int process = number_of(entry.path());
    if (process < 0 || ours.contains(process)) continue;
    std::ifstream in(entry.path() / "stat");
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const std::size_t open = text.find('('), close = text.rfind(')');
    if (close == std::string::npos || open == std::string::npos) continue;
    // proc(5): what follows the name begins with field 3.
    std::istringstream words(text.substr(close + 1));
    std::vector<std::string> fields((std::istream_iterator<std::string>(words)), {});
    if (fields.size() < 37) continue;
    state.others_s[process] = (std::stod(fields[11]) + std::stod(fields[12])) * tick_s();
    if (std::binary_search(cpus.begin(), cpus.end(), number_of(fields[36])))
      state.names[process] = text.substr(open + 1, close - open - 1);
  }
}

}  // namespace

MachineState look_at_machine(const cluster::CpuSet& cpus, const std::set<int>& ours,
                             const fs::path& root) {
  MachineState state;
  const GroupLimits group = look_at_group(root);
  state.throttled_s = group.throttled_s.value_or(-1);
  state.held_back = group.held_back.value_or(-1);
  state.steal_s = steal_of(cpus, root);
  add_threads(state, root);
  add_others(state, cpus, ours, root);
  const fs::path pages = root / "proc/vmstat";
  state.swapped_pages = static_cast<std::uint64_t>(std::max(0.0, value_in(pages, "pswpin")) +
                                                   std::max(0.0, value_in(pages, "pswpout")));
  return state;
}

Disturbance between(const MachineState& before, const MachineState& after) {
  Disturbance found;
  if (before.throttled_s >= 0) found.throttled_s = after.throttled_s - before.throttled_s;
  if (before.held_back >= 0) found.held_back = after.held_back - before.held_back;
  found.steal_s = after.steal_s - before.steal_s;
  found.swapped_pages = after.swapped_pages - before.swapped_pages;
  for (const auto& [thread, delay_s] : after.delay_s)
    if (const auto old = before.delay_s.find(thread); old != before.delay_s.end())
      found.delay_s = std::max(found.delay_s, delay_s - old->second);
  for (const auto& [thread, ran_s] : after.ran_s) {
    const auto old = before.ran_s.find(thread);
    found.ran_s += ran_s - (old == before.ran_s.end() ? 0 : old->second);
  }
  double most_s = 0;
  for (const auto& [process, used_s] : after.others_s) {
    const auto old = before.others_s.find(process);
    if (old == before.others_s.end() || !after.names.contains(process)) continue;
    const double more_s = used_s - old->second;
    found.others_s += more_s;
    if (more_s <= most_s) continue;
    most_s = more_s;
    found.busiest = fmt::format("{} ({})", after.names.at(process), process);
  }
  return found;
}

}  // namespace lockstep::study
