#include "lockstep/cluster/nodes/node_facts.hpp"

#include <elf.h>
#include <fmt/core.h>
#include <link.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string_view>

#include "lockstep/base/build_id.hpp"
#include "lockstep/base/files/io.hpp"

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

}  // namespace lockstep::cluster
