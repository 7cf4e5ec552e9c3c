#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

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

/// Pages of a file that all processes of the node share. Pages that cannot be read become zeros;
/// failed() tells after the read.
class Mapping {
 public:
  /// Throws InputError naming `name`.
  Mapping(int descriptor, const std::string& name);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  /// Null when the file no longer has them.
  const std::uint8_t* bytes(std::uint64_t begin, std::uint64_t end) const;
  bool failed() const { return guard_ && guard_->failed(); }

 private:
  int descriptor_;
  void* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::optional<FaultGuard> guard_;  // ends before the mapping does
};

}  // namespace lockstep::data
