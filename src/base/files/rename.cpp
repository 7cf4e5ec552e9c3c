#include "lockstep/base/files/rename.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// As ::rename(), but fails with EEXIST where `to` exists.
bool rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  struct stat there {};  // a file system that only knows rename(), such as NFS
  if (::lstat(to.c_str(), &there) != 0) return ::rename(from.c_str(), to.c_str()) == 0;
  errno = EEXIST;
  return false;
}

[[noreturn]] void cannot_rename(const fs::path& from, const fs::path& to) {
  fail_by_system(fmt::format("{} cannot become {}", from.string(), to.string()), errno);
}

}  // namespace

bool synchronise_folder_of(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const Owned<int, ::close, -1> open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return open && ::fsync(open.get()) == 0;
}

void rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0 || !synchronise_folder_of(to))
    fail_by_system("cannot write " + to.string(), errno);
}

fs::path rename_to_free(const fs::path& from, const fs::path& to) {
  fs::path name = to;
  for (int n = 2; !rename_to_new(from, name); ++n) {
    if (errno != EEXIST) cannot_rename(from, name);
    name = to;
    name += fmt::format("-{}", n);
  }
  if (!synchronise_folder_of(name)) cannot_rename(from, name);
  return name;
}

}  // namespace lockstep
