#pragma once

#include <cstddef>

namespace lockstep::data {

/// A mapped file whose pages may fail: where the kernel would end the process (SIGBUS: the file was
/// cut off, or its disk does not answer), the pages from there on become zeros and failed() is true
/// from then on. Whoever reads asks behind the reading. There may be some thousand of them; further
/// ones guard nothing. Other faults go where they went before. Thread-safe.
class FaultGuard {
 public:
  /// `bytes` from `begin`, which is a page's, until this is destroyed; they must stay mapped so
  /// long.
  FaultGuard(void* begin, std::size_t bytes);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;
  bool failed() const;

 private:
  std::size_t slot_;
};

}  // namespace lockstep::data
