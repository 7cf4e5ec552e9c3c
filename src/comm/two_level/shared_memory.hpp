#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/base/owned.hpp"

namespace lockstep::comm {

/// Memory, zero at first, that processes of one user on one node share. It has no name: the system
/// frees it when the last of them is gone, however they end. Pages exist once they are written.
class SharedMemory {
 public:
  /// Throws InputError with the system's reason.
  static SharedMemory create(std::size_t bytes);
  /// The memory that another process created and has not hidden yet. Throws InputError with the
  /// reason: that process belongs to another container, or the system forbids it.
  static SharedMemory attach(const std::string& address, std::size_t bytes);

  /// What attach() takes; REQUIRES: this process created it.
  const std::string& address() const { return address_; }
  /// From now on no one can attach.
  void hide() { file_.reset(); }
  std::byte* data() const { return data_.get(); }  ///< aligned to a page

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* data) const;
  };
  SharedMemory(Descriptor file, std::size_t bytes);

  Descriptor file_;
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
  std::string address_;
};

}  // namespace lockstep::comm
