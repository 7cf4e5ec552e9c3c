// Preloaded: a system whose pages have 64 KiB, as most with Arm processors at computing centres. It
// says so, gives memory in such pages, and refuses addresses and places in files between them, as
// its kernel does. With PAGES_64K=log, a refusal is also written to standard error.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { page = 65536 };

static size_t whole(size_t bytes) { return (bytes + page - 1) / page * page; }
static int between(const void *at) { return (uintptr_t)at % page != 0; }
static void *mapped(void *at, size_t bytes, int prot, int flags, int file, off_t from) {
  return (void *)syscall(SYS_mmap, at, bytes, prot, flags, file, from);
}
static int refuse(const char *what) {
  if (getenv("PAGES_64K") != NULL) fprintf(stderr, "%s between pages of 64 KiB\n", what);
  errno = EINVAL;
  return -1;
}

long sysconf(int name) {
  extern long __sysconf(int);
  return name == _SC_PAGESIZE ? page : __sysconf(name);
}

int getpagesize(void) { return page; }

void *mmap(void *at, size_t bytes, int prot, int flags, int file, off_t from) {
  if (from % page != 0 || ((flags & MAP_FIXED) && between(at))) {
    refuse("mmap");
    return MAP_FAILED;
  }
  if (flags & MAP_FIXED) return mapped(at, bytes, prot, flags, file, from);
  const size_t room = whole(bytes) + page;
  char *all = mapped(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return MAP_FAILED;
  char *begin = all + (whole((uintptr_t)all) - (uintptr_t)all);
  if (begin != all) syscall(SYS_munmap, all, begin - all);
  const size_t more = all + room - (begin + whole(bytes));
  if (more != 0) syscall(SYS_munmap, begin + whole(bytes), more);
  /* The rest of the last page, too: zeros. */
  mapped(begin, whole(bytes), prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  void *made = mapped(begin, bytes, prot, flags | MAP_FIXED, file, from);
  if (made == MAP_FAILED) {
    const int reason = errno;
    syscall(SYS_munmap, begin, whole(bytes));
    errno = reason;
  }
  return made;
}
void *mmap64(void *at, size_t bytes, int prot, int flags, int file, off_t from) {
  return mmap(at, bytes, prot, flags, file, from);
}

void *mremap(void *at, size_t old, size_t bytes, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void *to = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
  va_end(rest);
  if (between(at) || between(to)) {
    refuse("mremap");
    return MAP_FAILED;
  }
  return (void *)syscall(SYS_mremap, at, old, bytes, flags, to);
}

int munmap(void *at, size_t bytes) {
  return between(at) ? refuse("munmap") : (int)syscall(SYS_munmap, at, whole(bytes));
}
int madvise(void *at, size_t bytes, int advice) {
  return between(at) ? refuse("madvise") : (int)syscall(SYS_madvise, at, whole(bytes), advice);
}
int mprotect(void *at, size_t bytes, int prot) {
  return between(at) ? refuse("mprotect") : (int)syscall(SYS_mprotect, at, bytes, prot);
}
