#include "lockstep/cluster/nodes/node_measure.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "lockstep/base/build_id.hpp"
#include "lockstep/base/cgroup.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/cluster/topology/bind.hpp"

namespace lockstep::cluster {
namespace {

std::string soft_limit(const NodeLook& look, std::string_view name) {
  const auto found = look.limits.find(name);
  return found == look.limits.end() ? "unknown" : found->second.first;
}

std::string presence(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "is not there";
  return ::access(path.c_str(), R_OK) == 0 ? "can be read" : "cannot be read";
}

}  // namespace

std::map<std::string, std::string> node_facts(const Machine& machine, const NodeLook& look,
                                              const std::vector<std::string>& paths) {
  std::map<std::string, std::string> facts{
      {"lockstep's build", build_id()},
      {"processor", machine.model},
      {"allowed CPUs", std::to_string(machine.allowed.size())},
      {"GPUs", std::to_string(machine.gpus.size())},
      {"limit of locked memory (ulimit -l, bytes)", soft_limit(look, locked_memory)},
      {"limit of open files (ulimit -n)", soft_limit(look, open_files)},
      {"limit of the stack (ulimit -s, bytes)", soft_limit(look, "Max stack size")}};
  if (!look.kernel.empty()) facts["kernel"] = look.kernel;
  if (!look.nvidia_driver.empty()) facts["NVIDIA driver"] = look.nvidia_driver;
  for (const auto& [name, version] : look.drivers) facts["driver " + name] = version;
  for (const auto& [name, version] : look.libraries) facts["library " + name] = version;
  for (const std::string& path : paths)
    if (!path.empty()) facts[path] = presence(path);
  return facts;
}

NodeFigures combine(const std::vector<NodeFigures>& ranks) {
  check(!ranks.empty(), "a node has ranks");
  NodeFigures node = ranks.front();
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const NodeFigures& other = ranks[rank];
    node.flops_per_s = std::min(node.flops_per_s, other.flops_per_s);
    node.cpu_share += other.cpu_share;
    node.copy_bytes_per_s += other.copy_bytes_per_s;
    node.memory_bytes = std::max(node.memory_bytes, other.memory_bytes);
    if (!node.disk) node.disk = other.disk;
    node.facts.insert(other.facts.begin(), other.facts.end());
  }
  node.cpu_share /= static_cast<double>(ranks.size());
  return node;
}

namespace {

constexpr double arithmetic_s = 0.3, copy_s = 0.4;
constexpr std::size_t copied_bytes = std::size_t{16} << 20;  // more than a core's share of cache
constexpr std::size_t file_bytes = std::size_t{16} << 20, write_bytes = std::size_t{1} << 20;
constexpr double disk_patience_s = 5;

double cpu_time_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

using Floats = float __attribute__((vector_size(16)));

/// Multiplies and adds in registers; returns the number of operations.
double multiply_and_add(std::array<Floats, 8>& sums) {
  constexpr int rounds = 100'000;
  const Floats factor = Floats{} + 0.999f, term = Floats{} + 0.001f;
  for (int i = 0; i < rounds; ++i)
    for (Floats& sum : sums) sum = sum * factor + term;
  return 2.0 * rounds * static_cast<double>(sums.size()) * sizeof(Floats) / sizeof(float);
}

/// Rates per second of CPU time: they say how fast a core is, however busy it is with other
/// processes. cpu_s / wall_s is the share of the core that this thread got.
struct CoreFigures {
  double flops_per_s = 0, copy_bytes_per_s = 0, wall_s = 0, cpu_s = 0;
  float unused = 0;  // keeps the compiler from removing the arithmetic
};

CoreFigures measure_core(const CpuSet& cpus) {
  if (!cpus.empty()) bind_thread(cpus);
  CoreFigures figures;
  const double began_s = now_s(), began_cpu_s = cpu_time_s();
  std::array<Floats, 8> sums{};
  while (now_s() - began_s < arithmetic_s || figures.flops_per_s == 0) {
    const double begin_s = cpu_time_s();
    const double operations = multiply_and_add(sums);
    figures.flops_per_s = std::max(figures.flops_per_s, operations / (cpu_time_s() - begin_s));
  }
  for (const Floats& sum : sums) figures.unused += sum[0];

  std::vector<char> from(copied_bytes, 1), to(copied_bytes, 2);
  double bytes = 0;
  const double copy_began_s = now_s(), copy_began_cpu_s = cpu_time_s();
  while (now_s() - copy_began_s < copy_s || bytes == 0) {
    std::memcpy(to.data(), from.data(), copied_bytes);
    std::swap(from, to);
    bytes += copied_bytes;
  }
  figures.copy_bytes_per_s = bytes / (cpu_time_s() - copy_began_cpu_s);
  figures.wall_s = now_s() - began_s;
  figures.cpu_s = cpu_time_s() - began_cpu_s;
  return figures;
}

std::string reason(const std::filesystem::path& path, const char* what) {
  return fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(errno));
}

/// Throws InputError with the path and the system's reason.
DiskFigures try_disk(const std::filesystem::path& directory) {
  DiskFigures figures;
  struct statvfs space {};
  const bool asked = statvfs(directory.c_str(), &space) == 0;
  require(asked, reason(directory, "be asked for its free space"));
  figures.free_bytes = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  const std::filesystem::path path =
      directory / fmt::format(".lockstep-preflight-{}-{}", host_name(), getpid());
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  require(static_cast<bool>(file), reason(path, "be created"));
  ::unlink(path.c_str());  // so that nothing is left, whatever happens
  std::vector<char> block(write_bytes);
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<char>(i * 2654435761u >> 24);
  const double began_s = now_s();
  for (std::size_t at = 0; at < file_bytes; at += block.size()) {
    const bool whole = write_all_at(file.get(), block.data(), block.size(), at) == block.size();
    require(whole, reason(path, "be written"));
  }
  const bool durable = ::fdatasync(file.get()) == 0;
  require(durable, reason(path, "be synchronised"));
  figures.write_bytes_per_s = static_cast<double>(file_bytes) / (now_s() - began_s);
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  std::vector<char> back(block.size());
  for (std::size_t at = 0; at < file_bytes; at += block.size()) {
    const bool whole = read_all_at(file.get(), back.data(), back.size(), at) == back.size();
    require(whole, reason(path, "be read back"));
    require(back == block, path.string() + ": the bytes read back differ from those written");
  }
  return figures;
}

std::filesystem::path existing(std::filesystem::path directory) {
  std::error_code error;
  if (directory.empty()) directory = ".";
  directory = std::filesystem::absolute(directory, error);
  while (directory.has_relative_path() && !std::filesystem::is_directory(directory, error))
    directory = directory.parent_path();
  return directory;
}

/// The disk thread's answer. Shared, because that thread may outlive its caller.
struct DiskAnswer {
  std::mutex mutex;
  std::condition_variable there;
  std::optional<DiskFigures> figures;
};

}  // namespace

NodeFigures measure_cores(const std::vector<CpuSet>& cores) {
  std::vector<CoreFigures> figures(std::max<std::size_t>(cores.size(), 1));
  std::vector<std::exception_ptr> errors(figures.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < figures.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        figures[i] = measure_core(i < cores.size() ? cores[i] : CpuSet{});
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);

  NodeFigures node;
  node.flops_per_s = figures.front().flops_per_s;
  double wall_s = 0, cpu_s = 0;
  for (const CoreFigures& core : figures) {
    node.flops_per_s = std::min(node.flops_per_s, core.flops_per_s);
    node.copy_bytes_per_s += core.copy_bytes_per_s;
    wall_s += core.wall_s;
    cpu_s += core.cpu_s;
  }
  node.cpu_share = cpu_s / wall_s;
  struct sysinfo info {};
  if (sysinfo(&info) == 0) node.memory_bytes = static_cast<double>(info.totalram) * info.mem_unit;
  if (const auto most = look_at_group().memory_bytes)
    node.memory_bytes = std::min(node.memory_bytes, static_cast<double>(*most));
  return node;
}

// A file system that hangs never releases the thread that asks it, so a separate thread asks.
DiskFigures measure_disk(const std::filesystem::path& directory) {
  const auto answer = std::make_shared<DiskAnswer>();
  std::thread([answer, directory] {
    DiskFigures figures;
    try {
      figures = try_disk(existing(directory));
    } catch (const std::exception& error) {
      figures.error = error.what();
    }
    const std::lock_guard lock(answer->mutex);
    answer->figures = figures;
    answer->there.notify_all();
  }).detach();
  std::unique_lock lock(answer->mutex);
  const auto patience = std::chrono::duration<double>(disk_patience_s);
  if (answer->there.wait_for(lock, patience, [&] { return answer->figures.has_value(); }))
    return *answer->figures;
  DiskFigures late;
  late.error = fmt::format("{}: a file of {} MB was not written and read within {:.0f} s",
                           directory.string(), file_bytes >> 20, disk_patience_s);
  return late;
}

std::size_t tournament_rounds(std::size_t count) {
  return count < 2 ? 0 : count % 2 == 0 ? count - 1 : count;
}

// The circle method. One whose partner would be itself meets the last one, which is outside the
// circle, or sits out when the count is odd.
std::optional<std::size_t> partner_in(std::size_t round, std::size_t me, std::size_t count) {
  if (count < 2) return std::nullopt;
  const std::size_t circle = tournament_rounds(count);
  const bool even = count % 2 == 0;
  if (even && me == count - 1) {
    // The member i of the circle with 2 i = round (mod circle, which is odd).
    return round % 2 == 0 ? round / 2 : (round + circle) / 2;
  }
  const std::size_t other = (round + circle - me) % circle;
  if (other != me) return other;
  return even ? std::optional(count - 1) : std::nullopt;
}

}  // namespace lockstep::cluster
