#include "ports/cuda/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/room.hpp"
#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::cuda {

namespace {

/// Events with a time stamp; each step uses the same ones.
class CudaTimeline final : public device::Timeline {
 public:
  explicit CudaTimeline(CudaStream& stream) : stream_(stream) {}
  void mark() override {
    if (used_ == events_.size()) {
      cudaEvent_t event = nullptr;
      check_cuda(cudaEventCreate(&event), "cudaEventCreate");
      events_.emplace_back(event);
    }
    // In a recording: a separate step, so that each repetition stamps the event again.
    const unsigned kind = stream_.recording() ? cudaEventRecordExternal : cudaEventRecordDefault;
    check_cuda(cudaEventRecordWithFlags(events_[used_++].get(), stream_.get(), kind),
               "cudaEventRecordWithFlags");
  }
  void repeat_marks(std::size_t count) override { used_ += count; }
  void restart() override { used_ = 0; }
  std::vector<double> laps_ms() override {
    std::vector<double> laps;
    if (used_ > 0)
      check_cuda(cudaEventSynchronize(events_[used_ - 1].get()), "cudaEventSynchronize");
    for (std::size_t i = 1; i < used_; ++i) {
      float ms = 0;
      check_cuda(cudaEventElapsedTime(&ms, events_[i - 1].get(), events_[i].get()),
                 "cudaEventElapsedTime");
      laps.push_back(static_cast<double>(ms));
    }
    used_ = 0;
    return laps;
  }

 private:
  CudaStream& stream_;
  std::vector<Owned<cudaEvent_t, cudaEventDestroy>> events_;
  std::size_t used_ = 0;
};

}  // namespace

DeviceBuffer::DeviceBuffer(std::size_t bytes, const char* what) : size_(bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, or the next kernel's launch would report it
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw InputError(
        fmt::format(
            "{}: {:.2f} GB do not fit into the GPU's memory: {:.2f} of {:.2f} GB are free. Use a "
            "smaller batch or --accumulate",
            what, static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9,
            static_cast<double>(total) / 1e9),
        Ending::out_of_memory);
  }
  check_cuda(status, "cudaMalloc");
  memory_ = decltype(memory_)(memory);
}

int CudaDevice::made_current(int ordinal) {
  check_cuda(cudaSetDevice(ordinal), "cudaSetDevice");
  return ordinal;
}

std::uint64_t* CudaDevice::new_beacon() {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, sizeof(std::uint64_t), cudaHostAllocMapped), "cudaHostAlloc");
  return new (memory) std::uint64_t(0);
}

// A recorded mark is written in each step that repeats it: only its distance from the mark before
// the recording is the same in all of them.
void CudaDevice::mark_progress(std::uint64_t number) {
  if (compute_.recording()) return raise_beacon(marks_, number - newest_mark_, compute_.get());
  newest_mark_ = number;
  light_beacon(marks_, number, compute_.get());
}

std::string lack_of_kernels(const cudaDeviceProp& properties, int ordinal) {
  constexpr int oldest = 8;  // sm_80: the oldest that the kernels are compiled for
  if (properties.major >= oldest) return "";
  return fmt::format(
      "GPU {} is a {} of compute capability {}.{}; lockstep needs {}.0 (A100) or newer", ordinal,
      properties.name, properties.major, properties.minor, oldest);
}

CudaDevice::CudaDevice(int ordinal)
    : ordinal_(made_current(ordinal)),
      beacon_(new_beacon()),
      newest_mark_on_device_(sizeof(std::uint64_t), "the newest mark") {
  void* mapped = nullptr;
  check_cuda(cudaHostGetDevicePointer(&mapped, beacon_.get(), 0), "cudaHostGetDevicePointer");
  marks_ = {static_cast<std::uint64_t*>(mapped), newest_mark_on_device_.as<std::uint64_t>()};
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  name_ = properties.name;
  const std::string lack = lack_of_kernels(properties, ordinal);
  require(lack.empty(), lack);
}

std::unique_ptr<device::Timeline> CudaDevice::make_timeline() {
  return std::make_unique<CudaTimeline>(compute_);
}

std::unique_ptr<device::Repeater> CudaDevice::make_repeater() {
  return std::make_unique<GraphRepeater>(compute_);
}

// The system's own pages, locked. This process's binding decides where they are, and the kernel can
// tell. cudaHostAlloc leaves both to the driver. Whole pages, because none can be locked twice.
device::PinnedBuffer CudaDevice::allocate_pinned(std::size_t bytes) {
  const std::size_t page = page_bytes();
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
  const auto release = [](std::byte* memory) { std::free(memory); };
  std::unique_ptr<std::byte, decltype(release)> pages(
      static_cast<std::byte*>(std::aligned_alloc(page, rounded)), release);
  if (!pages)
    throw Error(fmt::format("no host memory for a buffer of {} bytes", rounded),
                Ending::out_of_memory);
  std::memset(pages.get(), 0, rounded);
  check_cuda(cudaHostRegister(pages.get(), rounded, cudaHostRegisterPortable), "cudaHostRegister");
  return {pages.release(), bytes, [copies = copy_.get()](std::byte* memory) {
            cudaStreamSynchronize(copies);  // a copy of the next batch may still read from here
            cudaHostUnregister(memory);
            std::free(memory);
          }};
}

std::optional<double> CudaDevice::upload_rate(const device::PinnedBuffer& from) {
  const DeviceBuffer to(from.size(), "a measurement of the upload");
  return static_cast<double>(from.size()) / fastest_called_s([&] {
           check_cuda(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyHostToDevice,
                                      compute_.get()),
                      "cudaMemcpyAsync");
         });
}

double CudaDevice::shortest_lap_s(int before, int timed, const std::function<void()>& lap) {
  for (int i = 0; i < before; ++i) lap();
  const std::unique_ptr<device::Timeline> timeline = make_timeline();
  timeline->mark();
  for (int i = 0; i < timed; ++i) {
    lap();
    timeline->mark();
  }
  const std::vector<double> laps_ms = timeline->laps_ms();
  return *std::min_element(laps_ms.begin(), laps_ms.end()) / 1e3;
}

double CudaDevice::fastest_called_s(const std::function<void()>& run) {
  return shortest_lap_s(1, 11, run);
}

double CudaDevice::fastest_recorded_s(const std::function<void()>& run) {
  constexpr int runs = 10, before = 2;  // called, recorded
  GraphRepeater repeater(compute_);
  return shortest_lap_s(before, 3,
                        [&] {
                          repeater.run(0, [&] {
                            for (int k = 0; k < runs; ++k) run();
                          });
                        }) /
         runs;
}

}  // namespace lockstep::cuda
