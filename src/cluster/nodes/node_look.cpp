#include "lockstep/cluster/nodes/node_look.hpp"

#include <elf.h>
#include <link.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>

#include "lockstep/base/files/io.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;
using Libraries = std::map<std::string, std::string>;

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

int add_library(dl_phdr_info* object, std::size_t, void* libraries) {
  const std::string path = object->dlpi_name ? object->dlpi_name : "";
  const std::string name = fs::path(path).filename();
  const std::string stem = name.substr(0, name.find(".so"));
  if (!counts(stem)) return 0;
  std::error_code error;
  const auto real = fs::canonical(path, error);
  const std::string id = build_id_of(*object);
  std::string& value = (*static_cast<Libraries*>(libraries))[stem];
  value = error ? name : real.filename().string();
  if (!id.empty()) value += fmt::format(" (build {})", id);
  return 0;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename());
  std::ranges::sort(names);
  return names;
}

/// The name of what a symbolic link names, which need not exist.
std::string linked_name(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).filename();
}

std::vector<InterfaceFacts> interfaces_below(const fs::path& root) {
  std::set<std::string> routed;
  std::ifstream in(root / "proc/net/route");
  for (std::string line, name; std::getline(in, line);)
    if (std::istringstream(line) >> name) routed.insert(name);
  std::vector<InterfaceFacts> found;
  for (const std::string& name : names_in(root / "sys/class/net"))
    found.push_back({name, routed.contains(name)});
  return found;
}

std::vector<GidFacts> gids_of(const fs::path& port) {
  constexpr int looked_at = 8;
  std::vector<GidFacts> gids;
  for (int index = 0; index < looked_at; ++index) {
    const std::string gid = first_line(port / "gids" / std::to_string(index));
    if (gid.find_first_not_of("0:") != gid.npos)
      gids.push_back({index, first_line(port / "gid_attrs/types" / std::to_string(index)), gid});
  }
  return gids;
}

std::vector<HcaFacts> hcas_below(const fs::path& root) {
  std::vector<HcaFacts> found;
  const fs::path all = root / "sys/class/infiniband";
  for (const std::string& name : names_in(all)) {
    const fs::path port = all / name / "ports/1";
    HcaFacts hca{.name = name, .driver = linked_name(all / name / "device/driver"), .gids = {}};
    hca.active = first_line(port / "state").starts_with("4:");
    hca.ethernet = first_line(port / "link_layer") == "Ethernet";
    if (hca.ethernet) hca.gids = gids_of(port);
    found.push_back(std::move(hca));
  }
  return found;
}

std::vector<MountFacts> mounts_below(const fs::path& root) {
  std::vector<MountFacts> found;
  std::ifstream in(root / "proc/self/mounts");
  for (std::string line, device; std::getline(in, line);) {
    MountFacts mount;
    if (std::istringstream(line) >> device >> mount.path >> mount.type >> mount.options)
      found.push_back(std::move(mount));
  }
  return found;
}

/// Columns of fixed width: name, soft, hard, unit.
void read_limits(const fs::path& root, NodeLook& look) {
  constexpr std::size_t name_width = 26;
  std::ifstream in(root / "proc/self/limits");
  for (std::string line; std::getline(in, line);) {
    if (line.size() <= name_width || line.starts_with("Limit ")) continue;
    std::istringstream values(line.substr(name_width));
    std::pair<std::string, std::string> limit;
    if (values >> limit.first >> limit.second)
      look.limits[std::string(trimmed(std::string_view(line).substr(0, name_width)))] = limit;
  }
}

void read_processors(const fs::path& root, NodeLook& look) {
  look.allowed = parse_cpus(field_of(root / "proc/self/status", "Cpus_allowed_list"));
  const std::string flags = field_of(root / "proc/cpuinfo", "flags");
  look.cpu_flags =
      ' ' + (flags.empty() ? field_of(root / "proc/cpuinfo", "Features") : flags) + ' ';
  const fs::path frequency = root / "sys/devices/system/cpu/cpu0/cpufreq";
  look.governor = first_line(frequency / "scaling_governor");
  look.governor_driver = first_line(frequency / "scaling_driver");
}

}  // namespace

std::string NodeLook::value(std::string_view name) const {
  const auto found = env.find(name);
  return found == env.end() ? std::string() : found->second;
}

bool NodeLook::has_file(const fs::path& path) const {
  std::error_code error;
  return fs::exists(root / path.relative_path(), error);
}

double NodeLook::limit(std::string_view name) const {
  const auto found = limits.find(name);
  const auto number = found == limits.end() ? std::nullopt : real_number(found->second.first);
  return number.value_or(std::numeric_limits<double>::infinity());
}

MountFacts NodeLook::mount_of(const std::string& path) const {
  MountFacts nearest;
  for (const MountFacts& mount : mounts) {
    const bool holds =
        mount.path == "/" || path == mount.path || path.starts_with(mount.path + "/");
    if (holds && mount.path.size() >= nearest.path.size()) nearest = mount;
  }
  return nearest;
}

NodeLook look_at_node(Variables env, const fs::path& root) {
  NodeLook look;
  look.env = std::move(env);
  look.root = root;
  look.interfaces = interfaces_below(root);
  look.hcas = hcas_below(root);
  look.slingshot_cards = names_in(root / "sys/class/cxi").size();
  look.gpus = names_in(root / "proc/driver/nvidia/gpus").size();
  look.nvidia_driver = first_line(root / "proc/driver/nvidia/version");
  look.kernel = first_line(root / "proc/sys/kernel/osrelease");
  for (const char* module : {"mlx5_core", "efa", "amdgpu"})
    if (const auto version = first_line(root / "sys/module" / module / "version"); !version.empty())
      look.drivers[module] = version;
  look.mounts = mounts_below(root);
  read_limits(root, look);
  read_processors(root, look);
  look.filters_calls = field_of(root / "proc/self/status", "Seccomp") == "2";
  if (root == "/") dl_iterate_phdr(add_library, &look.libraries);
  return look;
}

}  // namespace lockstep::cluster
