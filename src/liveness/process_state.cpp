#include "lockstep/liveness/process_state.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "lockstep/base/files/io.hpp"

namespace lockstep::liveness {
namespace {

const Trouble ended{"its process has ended", Ending::lost_rank};

/// The value of a line "Name:\tvalue".
std::string value_of(const std::string& status, const std::string& name) {
  const std::size_t line = status.find("\n" + name + ":\t");
  if (line == std::string::npos) return "";
  const std::size_t begin = line + name.size() + 3;
  return status.substr(begin, status.find('\n', begin) - begin);
}

/// Of all times.
std::uint64_t memory_kills_so_far() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  for (std::uint64_t value = 0; file >> name >> value;)
    if (name == "oom_kill") return value;
  return 0;
}

const std::uint64_t memory_kills_before = memory_kills_so_far();

}  // namespace

std::uint64_t memory_kills() { return memory_kills_so_far() - memory_kills_before; }

ProcessId own_process() {
  struct stat space {};
  const bool known = ::stat("/proc/self/ns/pid", &space) == 0;
  return {::getpid(), known ? space.st_ino : 0};
}

Trouble trouble_of(const ProcessId& process) {
  const ProcessId own = own_process();
  if (own.space == 0 || process.space != own.space) return {};
  std::ifstream file(fmt::format("/proc/{}/status", process.number));
  if (!file)  // it may only be out of sight
    return ::kill(process.number, 0) != 0 && errno == ESRCH ? ended : Trouble{};
  return trouble_in({std::istreambuf_iterator<char>(file), {}});
}

bool has_ended(const ProcessId& process) { return trouble_of(process).ending == Ending::lost_rank; }

Trouble trouble_in(const std::string& status) {
  if (value_of(status, "CoreDumping") == "1") return {"it has crashed and writes a core"};
  const std::string state = value_of(status, "State");
  switch (state.empty() ? '\0' : state.front()) {
    case 'T':
      return {"it is stopped"};
    case 't':
      return {"a debugger has stopped it"};
    case 'D':
      return {"it is in disk sleep: it waits for a file system or a device", Ending::file_system};
    case 'Z':
    case 'X':
      return ended;
  }
  return {};
}

namespace {

// A turn sleeps for less, and take() was called later than that before it.
constexpr double least_s = 1;

}  // namespace

StarvationWatch::StarvationWatch(std::optional<double> (*waited)())
    : waited_(waited), waited_s_(waited()) {}

bool StarvationWatch::turn(double since_last_s) {
  if (since_last_s < least_s) return false;
  const std::optional<double> before = std::exchange(waited_s_, waited_());
  const bool starved = before && waited_s_ && *waited_s_ - *before > since_last_s / 2;
  if (starved) longest_s_ = std::max(longest_s_, since_last_s);
  return starved;
}

double StarvationWatch::take() {
  waited_s_ = waited_();
  return std::exchange(longest_s_, 0);
}

std::optional<double> StarvationWatch::waited_for_a_core() {
  std::istringstream numbers(first_line("/proc/thread-self/schedstat"));
  double ran_ns = 0, waited_ns = 0;
  if (!(numbers >> ran_ns >> waited_ns)) return std::nullopt;
  return waited_ns * 1e-9;
}

}  // namespace lockstep::liveness
