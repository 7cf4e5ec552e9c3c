#include "lockstep/comm/worlds/world.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <string_view>

#include "ports/mpi/call.hpp"

namespace lockstep::mpi {
namespace {

namespace fs = std::filesystem;

/// The ways in which Open MPI can talk to a launcher, by its folder of plugins.
struct Plugins {
  bool pmix = false, slurm_pmi = false;
};

void look_into(const fs::path& folder, int depth, Plugins& plugins) {
  std::error_code error;  // a folder that cannot be read is ignored
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (entry.is_directory(error) && depth > 0) look_into(entry.path(), depth - 1, plugins);
    plugins.pmix |= name.starts_with("mca_pmix_") && name.find("3x") != name.npos;
    plugins.slurm_pmi |= name == "mca_pmix_s1.so" || name == "mca_pmix_s2.so";
  }
}

/// Open MPI before 5 can be built for Slurm's own PMI, and then has a plugin for it. Later versions
/// speak only PMIx.
bool needs_pmix(std::string_view name) {
  constexpr std::string_view open_mpi = "Open MPI v";
  if (!name.starts_with(open_mpi)) return false;
  name.remove_prefix(open_mpi.size());
  if (name.substr(0, name.find('.')) > "4" || name.find('.') > 1) return true;
  Dl_info library;
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init), &library) == 0) return false;
  std::error_code error;
  const fs::path path = fs::canonical(library.dli_fname, error);
  Plugins plugins;
  look_into(path.parent_path() / "openmpi", 2, plugins);
  return plugins.pmix && !plugins.slurm_pmi;
}

}  // namespace

}  // namespace lockstep::mpi

namespace lockstep::comm {

cluster::MpiLibrary mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  mpi::must(MPI_Get_library_version(text, &length));
  const std::string version(text, static_cast<std::size_t>(length));
  cluster::MpiLibrary library;
  library.name = version.substr(0, version.find_first_of(",\n"));
  library.needs_pmix = mpi::needs_pmix(library.name);
  return library;
}

}  // namespace lockstep::comm
