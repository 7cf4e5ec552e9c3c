#pragma once

#include <cstddef>

namespace lockstep::data {

/// Guards a mapped file whose pages may fail because the file was cut off or its disk does not
/// answer. There the kernel would end the process (SIGBUS). Instead, the pages from there on become
/// zeros and failed() is true from then on; callers ask it after reading. A few thousand guards can
/// exist; further ones guard nothing. Other faults are handled as before. Where the map is shared
/// and `writable`, what is written to such pages is this process's alone.
///
/// **Thread safety:** all of it.
class FaultGuard {
 public:
  /// Guards `bytes` from `begin`, the start of a page, until this is destroyed; they must stay
  /// mapped until then.
  FaultGuard(void* begin, std::size_t bytes, bool writable = false);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;
  bool failed() const;

 private:
  std::size_t slot_;
};

}  // namespace lockstep::data
