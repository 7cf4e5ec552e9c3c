#include "lockstep/comm/nccl.hpp"

#include <cuda_runtime.h>
#include <fmt/core.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/world.hpp"
#include "lockstep/device/idle.hpp"
#include "lockstep/liveness/watch.hpp"
#include "ports/cuda/runtime/check.hpp"
#include "ports/cuda/runtime/range.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::comm {
namespace {

constexpr std::chrono::seconds patience_with_nccl{5};

/// How long a rank that closes NCCL waits for the others to do so.
double closing_s(double deadline_s) { return std::clamp(deadline_s / 4, 2.0, 30.0); }

/// Wraps NCCL's communicator. It is non-blocking: every call returns at once, and state() tells
/// when the call has finished. **Thread safety:** the main thread and the watch use it. It is
/// shared with the thread that aborts it, because that one may hang and outlive both.
class Connection {
 public:
  ncclResult_t open(const ncclUniqueId& id, int rank, int world) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    cuda::check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
    const std::scoped_lock lock(mutex_);
    return ncclCommInitRankConfig(&comm_, world, id, rank, &config);
  }

  ncclResult_t all_reduce_sum(float* data, std::size_t count, cudaStream_t stream) {
    const std::scoped_lock lock(mutex_);
    return comm_ ? ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm_, stream)
                 : ncclInvalidUsage;
  }

  /// ncclInProgress while a call is in progress. Also ncclInProgress while another thread's call
  /// holds the lock.
  ncclResult_t state() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || !comm_) return ncclInProgress;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    return asked == ncclSuccess ? state : asked;
  }

  std::string describe(ncclResult_t result) {
    const char* detail = ncclGetLastError(nullptr);
    return fmt::format("{}{}{}", ncclGetErrorString(result), detail && *detail ? ": " : "",
                       detail ? detail : "");
  }

  ncclResult_t begin_to_close() {
    const std::scoped_lock lock(mutex_);
    return comm_ ? ncclCommFinalize(comm_) : ncclSuccess;
  }
  void close() {
    const std::scoped_lock lock(mutex_);
    if (comm_) ncclCommDestroy(std::exchange(comm_, nullptr));
  }

  /// Ends NCCL's kernels and frees their resources. A stuck call holds the lock for ever: then this
  /// does nothing, and the watch gives up.
  void abort() {
    cudaSetDevice(device_);  // a new thread is on device 0 and would make a context there
    const std::unique_lock lock(mutex_, patience_with_nccl);
    if (lock && comm_) ncclCommAbort(std::exchange(comm_, nullptr));
  }

 private:
  int device_ = 0;
  std::timed_mutex mutex_;
  ncclComm_t comm_ = nullptr;
};

/// Sets the variables that NCCL reads when it starts. Values that the user has set take precedence.
void prepare_environment(const NcclSpec& spec, int rank) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 0);
  };
  // NCCL takes ranks with different host ids to be on different machines, whose GPUs cannot be the
  // same; such ranks communicate over sockets.
  if (spec.share_gpu) set("NCCL_HOSTID", fmt::format("lockstep-rank-{}", rank));
  if (spec.deterministic) {
    set("NCCL_ALGO", "Ring");
    set("NCCL_PROTO", "Simple");
  }
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Control& control, const NcclSpec& spec)
      : rank_(control.rank()),
        world_(control.world()),
        deadline_s_(spec.deadline_s),
        find_absence_(spec.find_absence) {
    if (world_ == 1) return;
    prepare_environment(spec, rank_);
    connect(control);
    watch_ = std::make_unique<liveness::Watch>(watch_spec());
  }

  ~NcclCommunicator() override {
    if (!watch_) return;
    const bool aborted = watch_->failed();
    watch_.reset();
    if (aborted) return;
    if (std::uncaught_exceptions() > 0)
      abort_within_patience();
    else
      close();
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  device::Stream& network() override { return network_; }

  void begin_step(std::uint64_t step) override {
    if (watch_) watch_->begin_step(step);
  }

  void all_reduce_sum(float* data, std::size_t count, std::string_view name) override {
    if (world_ == 1 || count == 0) return;
    watch_->rethrow();
    const cuda::Range range(fmt::format("reduction of {}", name));
    settle(connection_->all_reduce_sum(data, count, network_.get()), name);
    watch_->started(name, network_.record());
  }

  void progress() override {
    if (watch_) watch_->rethrow();
  }

 private:
  void connect(Control& control) {
    ncclUniqueId id{};
    if (rank_ == 0) {
      const ncclResult_t made = ncclGetUniqueId(&id);
      check(made == ncclSuccess, fmt::format("ncclGetUniqueId: {}", connection_->describe(made)));
    }
    const std::string bytes =
        control.broadcast(std::string(id.internal, sizeof id.internal), "NCCL's id");
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    settle(connection_->open(id, rank_, world_), "the start of NCCL");
  }

  /// Waits until NCCL has finished the call: only then are its kernels in the stream, and only then
  /// may another call follow.
  void settle(ncclResult_t result, std::string_view what) {
    const double start_s = now_s();
    device::Idle idle;
    // Both results only mean that the call was accepted; state() tells what became of it.
    if (result == ncclSuccess || result == ncclInProgress) result = connection_->state();
    for (; result == ncclInProgress; result = connection_->state()) {
      if (watch_) watch_->rethrow();
      if (now_s() - start_s > deadline_s_) {
        abort_within_patience();
        throw Error(fmt::format("{} did not end within {:.3g} s; {}", what, deadline_s_,
                                find_missing(deadline_s_)));
      }
      idle();
    }
    if (result == ncclSuccess) return;
    const std::string why = connection_->describe(result);
    throw Error(fmt::format("{}: NCCL: {}", what, why));
  }

  liveness::WatchSpec watch_spec() {
    liveness::WatchSpec spec;
    spec.deadline_s = deadline_s_;
    int device = 0;
    cuda::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    // A new thread is on device 0 and would make a context there. This one only looks at events,
    // which a capture on another thread must not forbid.
    spec.enter = [device] {
      cudaSetDevice(device);
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
      cudaThreadExchangeStreamCaptureMode(&mode);
    };
    spec.library_error = [connection = connection_] {
      const ncclResult_t state = connection->state();
      const bool well = state == ncclSuccess || state == ncclInProgress;
      return well ? std::string() : "NCCL: " + connection->describe(state);
    };
    spec.find_missing = [this](double waited_s) { return find_missing(waited_s); };
    spec.abort = [connection = connection_] { connection->abort(); };
    spec.give_up = [](const std::string& why) {
      log::error(why);
      World::abort(EXIT_FAILURE);
    };
    return spec;
  }

  /// Called by the first thread that misses a rank.
  std::string find_missing(double waited_s) const {
    const auto absence = find_absence_ ? find_absence_(waited_s) : std::nullopt;
    return absence ? absence->text : "the ranks' heartbeats do not show which one is missing";
  }

  /// Calls ncclCommAbort, on a separate thread that is abandoned if it hangs.
  void abort_within_patience() {
    auto done = std::make_shared<std::promise<void>>();
    auto ended = done->get_future();
    std::thread([connection = connection_, done] {
      connection->abort();
      done->set_value();
    }).detach();
    ended.wait_for(2 * patience_with_nccl);
  }

  /// All ranks come here when training is done; a rank that does not come must not hold up the
  /// others.
  void close() {
    const double start_s = now_s();
    ncclResult_t state = connection_->begin_to_close();
    for (device::Idle idle; state == ncclInProgress && now_s() - start_s < closing_s(deadline_s_);
         idle())
      state = connection_->state();
    if (state == ncclSuccess)
      connection_->close();
    else
      abort_within_patience();
  }

  int rank_, world_;
  double deadline_s_;
  cuda::CudaStream network_{cuda::CudaStream::Priority::high};
  const FindAbsence find_absence_;
  std::shared_ptr<Connection> connection_ = std::make_shared<Connection>();
  std::unique_ptr<liveness::Watch> watch_;  // last: its thread uses the others
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Control& control, const NcclSpec& spec) {
  return std::make_unique<NcclCommunicator>(control, spec);
}

}  // namespace lockstep::comm
