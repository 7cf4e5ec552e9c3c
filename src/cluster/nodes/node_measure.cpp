#include "lockstep/cluster/nodes/node_measure.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
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

using Facts = std::map<std::string, std::string>;

/// The first bytes of a library's build id, which the linker made. Libraries of one version have
/// different ids when they were built differently.
std::string build_id_of(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& part = object.dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives addresses as numbers
    const char* at = reinterpret_cast<const char*>(object.dlpi_addr + part.p_vaddr);
    const char* end = at + part.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const auto padded = [](std::size_t size) { return (size + 3) / 4 * 4; };
      const char* name = at + sizeof note;
      const char* id = name + padded(note.n_namesz);
      if (id + note.n_descsz > end) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(name, "GNU", 4) == 0) {
        std::string text;
        for (std::size_t byte = 0; byte < std::min<std::size_t>(note.n_descsz, 4); ++byte)
          text += fmt::format("{:02x}", static_cast<unsigned char>(id[byte]));
        return text;
      }
      at = id + padded(note.n_descsz);
    }
  }
  return "";
}

/// Whether a training's bits, speed or messages depend on this library. Plugins open others, which
/// may differ between nodes without harm.
bool counts(std::string_view library) {
  for (const char* name : {"libc", "libm", "libstdc++", "libz"})
    if (library == name) return true;
  for (const char* group :
       {"libcud", "libdnnl", "libfabric", "libfmt", "libgomp", "libhdf5", "libhwloc", "libib",
        "libjpeg", "libmpi", "libnccl", "libopen-", "libpmix", "libpng", "librdma", "libuc"})
    if (library.starts_with(group)) return true;
  return false;
}

int add_library(dl_phdr_info* object, std::size_t, void* facts) {
  const std::string path = object->dlpi_name ? object->dlpi_name : "";
  const std::string name = std::filesystem::path(path).filename();
  const std::string stem = name.substr(0, name.find(".so"));
  if (!counts(stem)) return 0;
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  const std::string id = build_id_of(*object);
  std::string& value = (*static_cast<Facts*>(facts))["library " + stem];
  value = error ? name : real.filename().string();
  if (!id.empty()) value += fmt::format(" (build {})", id);
  return 0;
}

std::string limit(int resource) {
  rlimit limits{};
  if (getrlimit(resource, &limits) != 0) return "unknown";
  return limits.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limits.rlim_cur);
}

std::string presence(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "is not there";
  return ::access(path.c_str(), R_OK) == 0 ? "can be read" : "cannot be read";
}

}  // namespace

std::map<std::string, std::string> node_facts(const Machine& machine,
                                              const std::vector<std::string>& paths) {
  Facts facts{{"lockstep's build", build_id()},
              {"processor", machine.model},
              {"allowed CPUs", std::to_string(machine.allowed.size())},
              {"GPUs", std::to_string(machine.gpus.size())},
              {"limit of locked memory (ulimit -l, bytes)", limit(RLIMIT_MEMLOCK)},
              {"limit of open files (ulimit -n)", limit(RLIMIT_NOFILE)},
              {"limit of the stack (ulimit -s, bytes)", limit(RLIMIT_STACK)}};
  utsname kernel{};
  if (uname(&kernel) == 0) facts["kernel"] = kernel.release;
  if (const auto driver = first_line("/proc/driver/nvidia/version"); !driver.empty())
    facts["NVIDIA driver"] = driver;
  for (const char* module : {"mlx5_core", "efa", "amdgpu"})
    if (const auto version = first_line(fmt::format("/sys/module/{}/version", module));
        !version.empty())
      facts[fmt::format("driver {}", module)] = version;
  dl_iterate_phdr(add_library, &facts);
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
