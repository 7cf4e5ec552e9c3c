#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/base/owned.hpp"
#include "lockstep/device/device.hpp"
#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::cuda {

/// Why lockstep has no kernels for such a GPU; empty if it has.
std::string lack_of_kernels(const cudaDeviceProp& properties, int ordinal);

/// Memory on the device that is current when the buffer is made. Its contents are undefined.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// If there is not enough memory, throws Error naming `what`, how much it needs and how much is
  /// free.
  DeviceBuffer(std::size_t bytes, const char* what);
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  std::size_t size() const { return size_; }
  template <class T>
  T* as(std::size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(data() + byte_offset);
  }

 private:
  Owned<void*, cudaFree> memory_;
  std::size_t size_ = 0;
};

/// One GPU of this process. Work goes to its streams only, never to the default stream: compute()
/// runs the tape, and copy() brings the next batch to the device at the same time.
class CudaDevice final : public device::Device {
 public:
  /// Makes device `ordinal` current for the calling thread. Throws InputError when the device or
  /// its driver is too old, naming what was found and what is needed. **Thread safety:** only that
  /// thread uses the object.
  explicit CudaDevice(int ordinal);
  std::string name() const override { return name_; }
  device::PinnedBuffer allocate_pinned(std::size_t bytes) override;
  CudaStream& compute() override { return compute_; }
  std::optional<double> upload_rate(const device::PinnedBuffer& from) override;
  /// One that runs, and one that waits for it: a host that is late by a step costs nothing.
  std::size_t steps_ahead() const override { return 2; }
  std::unique_ptr<device::Timeline> make_timeline() override;
  std::unique_ptr<device::Repeater> make_repeater() override;
  const volatile std::uint64_t* progress_word() const override { return beacon_.get(); }
  void mark_progress(std::uint64_t number) override;
  /// The seconds of the fastest of some runs that are put into the compute stream one by one. For
  /// copies of many bytes: a CUDA graph copies more slowly. A run that is shorter than the calls
  /// that start it would measure the host.
  double fastest_called_s(const std::function<void()>& run);
  /// Records the work of `run` ten times in a row as a CUDA graph and repeats that; returns the
  /// seconds of one run of the fastest repetition. For kernels, however short. Throws Error when
  /// the work cannot be recorded.
  double fastest_recorded_s(const std::function<void()>& run);
  CudaStream& copy() { return copy_; }
  int ordinal() const { return ordinal_; }

 private:
  static int made_current(int ordinal);
  static std::uint64_t* new_beacon();
  /// Of `timed` laps after `before` others.
  double shortest_lap_s(int before, int timed, const std::function<void()>& lap);
  int ordinal_;  // first: making it current decides the device of the streams
  Owned<std::uint64_t*, cudaFreeHost> beacon_;  // host memory, mapped for the device
  CudaStream compute_, copy_;
  DeviceBuffer newest_mark_on_device_;
  Beacon marks_;
  std::uint64_t newest_mark_ = 0;
  std::string name_;
};

}  // namespace lockstep::cuda
