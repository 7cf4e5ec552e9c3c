// Preloaded: what some network and USB file systems answer. ODD names what they lack, in words:
// links (link), noreplace (a rename that replaces nothing), foldersync (fsync of a folder), locks
// (flock and fcntl's), replies (that of a link that was made: EIO and EEXIST in turn), listings
// (ESTALE in the middle of every twentieth one), handles (that of an open claim: ESTALE at every
// fifth question, as if it had just been removed).
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

static int lacks(const char *what) {
  const char *odd = getenv("ODD");
  return odd != NULL && strstr(odd, what) != NULL;
}

static int refuse(int reason) {
  errno = reason;
  return -1;
}

int link(const char *from, const char *to) {
  static int lost;
  if (lacks("links")) return refuse(EPERM);
  const int made = (int)syscall(SYS_linkat, -100, from, -100, to, 0);
  return made == 0 && lacks("replies") ? refuse(lost++ % 2 == 0 ? EIO : EEXIST) : made;
}

/* Processes and their files stay what they are. */
static int is_kernels(DIR *folder) {
  struct statfs system;
  return fstatfs(dirfd(folder), &system) == 0 && system.f_type == 0x9fa0;
}

struct dirent *readdir(DIR *folder) {
  static struct dirent *(*next)(DIR *);
  static int listings, names;
  if (next == NULL) next = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir");
  if (!lacks("listings") || is_kernels(folder)) return next(folder);
  if (telldir(folder) == 0) names = 0, ++listings;
  return listings % 20 == 0 && ++names > 5 ? (errno = ESTALE, (struct dirent *)NULL) : next(folder);
}

int fstat(int file, struct stat *status) {
  static int asked;
  char link[32], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (lacks("handles") && readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/claims/") &&
      ++asked % 5 == 0)
    return refuse(ESTALE);
  return (int)syscall(SYS_fstat, file, status);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  if (flags != 0 && lacks("noreplace")) return refuse(EINVAL);
  return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int fsync(int file) {
  struct stat status;
  if (lacks("foldersync") && fstat(file, &status) == 0 && S_ISDIR(status.st_mode))
    return refuse(EINVAL);
  return (int)syscall(SYS_fsync, file);
}

int flock(int file, int what) {
  return lacks("locks") ? refuse(ENOLCK) : (int)syscall(SYS_flock, file, what);
}

int fcntl64(int file, int what, ...) {
  va_list more;
  va_start(more, what);
  void *given = va_arg(more, void *);
  va_end(more);
  const int locks = what == F_SETLK || what == F_SETLKW || what == F_OFD_SETLK ||
                    what == F_OFD_SETLKW;
  return locks && lacks("locks") ? refuse(ENOLCK) : (int)syscall(SYS_fcntl, file, what, given);
}

int fcntl(int file, int what, ...) __attribute__((alias("fcntl64")));
