#include "lockstep/base/files/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

Descriptor open_folder_of(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  return Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/// As ::rename(), but fails with EEXIST where `to` exists.
bool rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // A file system that only knows rename(), such as NFS: this machine's processes take turns.
  const Descriptor folder = open_folder_of(to);
  if (folder) ::flock(folder.get(), LOCK_EX);
  struct stat there {};
  if (::lstat(to.c_str(), &there) != 0) return ::rename(from.c_str(), to.c_str()) == 0;
  errno = EEXIST;
  return false;
}

/// What link() says on a file system without hard links, or a container that forbids them.
bool has_no_links(int error_number) {
  return error_number == EPERM || error_number == EOPNOTSUPP || error_number == ENOSYS ||
         error_number == EMLINK || error_number == EINVAL;
}

[[noreturn]] void cannot_rename(const fs::path& from, const fs::path& to) {
  fail_by_system(fmt::format("{} cannot become {}", from.string(), to.string()), errno);
}

}  // namespace

bool synchronise_folder_of(const fs::path& path) {
  const Descriptor folder = open_folder_of(path);
  if (!folder) return errno == EACCES;  // one that this user may write to, but not read
  return ::fsync(folder.get()) == 0 || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS;
}

bool give_new_name(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return true;
  // A network file system may lose the answer: then the name is there, or a second try says EEXIST.
  const int reason = errno;
  std::error_code none;
  if (fs::equivalent(from, to, none)) return true;
  errno = reason;
  return has_no_links(reason) && rename_to_new(from, to);
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
