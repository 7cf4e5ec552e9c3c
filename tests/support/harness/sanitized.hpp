#pragma once

#include <dlfcn.h>

namespace lockstep::test {

/// Whether a sanitizer watches this process. Then its memory says little of the program: what was
/// freed is kept for a while, and there is a shadow of all.
inline bool sanitized() {
  return ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ||
         ::dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
}

}  // namespace lockstep::test
