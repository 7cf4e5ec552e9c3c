// Preloaded: what some network and USB file systems answer. ODD names what they lack, in words:
// links (link), noreplace (a rename that replaces nothing), foldersync (fsync of a folder).
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
  if (lacks("links")) return refuse(EPERM);
  return (int)syscall(SYS_linkat, -100, from, -100, to, 0);
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
