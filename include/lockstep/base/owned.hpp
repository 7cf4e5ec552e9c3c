#pragma once

#include <unistd.h>

#include <utility>

namespace lockstep {

/// Owns one handle of a C library: released once, moved by exchange, never copied. `none` is the
/// value that owns nothing (0, nullptr or -1, depending on the library).
template <class Handle, auto Release, Handle none = Handle{}>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, none)) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, none);
    }
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != none; }
  Handle release() { return std::exchange(handle_, none); }
  void reset() {
    if (handle_ != none) Release(std::exchange(handle_, none));
  }

 private:
  Handle handle_ = none;
};

using Descriptor = Owned<int, ::close, -1>;  ///< of an open file

}  // namespace lockstep
