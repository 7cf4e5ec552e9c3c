#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/bytes/fault_guard.hpp"

namespace lockstep::data {

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
