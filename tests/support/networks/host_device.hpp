#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::test {

/// A device for tests of what fills pinned memory: it has no stream. Its buffers hold 0xAA, which
/// shows what was not written.
struct HostDevice final : device::Device {
  std::string name() const override { return "host"; }
  device::Stream& compute() override { throw Error("this device has no stream"); }
  device::PinnedBuffer allocate_pinned(std::size_t bytes) override {
    constexpr std::align_val_t alignment{64};
    auto* data = static_cast<std::byte*>(::operator new(bytes, alignment));
    std::memset(data, 0xAA, bytes);
    return {data, bytes, [=](std::byte* memory) { ::operator delete(memory, alignment); }};
  }
};

}  // namespace lockstep::test
