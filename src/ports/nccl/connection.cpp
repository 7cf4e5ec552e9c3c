// Why NCCL's communicators block. A non-blocking one starts a thread for each collective, and the
// host would wait for that thread before the next call. Only the first collective connects the
// ranks and may wait for them; the watch sees a call that does not return. Opening, splitting and
// closing run on a separate thread, with a deadline.
#include "ports/nccl/connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/device/idle.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::nccl {
namespace {

constexpr std::chrono::seconds patience_with_nccl{5};

/// In progress: where the user's NCCL_COMM_BLOCKING=0 overrides what we ask for.
bool accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  return asked == ncclSuccess ? state : asked;
}

}  // namespace

void Connection::run_aside(std::function<ncclResult_t()> what) {
  aside_ = true;
  std::thread([self = shared_from_this(), what = std::move(what)] {
    cudaSetDevice(self->device_);  // a new thread is on device 0 and would make a context there
    const std::scoped_lock lock(self->mutex_);
    self->aside_result_ = what();
    self->aside_ = false;
  }).detach();
}

void Connection::open(const ncclUniqueId& id, int rank, int world) {
  cuda::check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
  run_aside([this, id, rank, world] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    return ncclCommInitRankConfig(&comm_, world, id, rank, &config);
  });
}

void Connection::split(int colour, int key, std::shared_ptr<Connection> part) {
  part_ = std::move(part);
  part_->device_ = device_;
  // A part inherits the configuration.
  run_aside([this, colour, key] {
    return comm_ ? ncclCommSplit(comm_, colour, key, &part_->comm_, nullptr) : ncclInvalidUsage;
  });
}

ncclResult_t Connection::call(const std::function<ncclResult_t(ncclComm_t)>& start) {
  const std::scoped_lock lock(mutex_);
  ++calls_;
  const ncclResult_t result = comm_ ? start(comm_) : ncclInvalidUsage;
  ++calls_;
  return result;
}

ncclResult_t Connection::state() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || aside_) return ncclInProgress;
  if (!accepted(aside_result_) || !comm_) return aside_result_;
  return state_of(comm_);
}

ncclResult_t Connection::place(int& rank, int& world) {
  return call([&](ncclComm_t comm) {
    const ncclResult_t asked = ncclCommUserRank(comm, &rank);
    return asked == ncclSuccess ? ncclCommCount(comm, &world) : asked;
  });
}

void Connection::close() {
  run_aside([this] {
    if (!comm_) return ncclSuccess;
    ncclResult_t ended = ncclCommFinalize(comm_);
    for (device::Idle idle; ended == ncclInProgress; idle()) ended = state_of(comm_);
    ncclCommDestroy(std::exchange(comm_, nullptr));
    return ended;
  });
}

void Connection::abort() {
  if (aside_) return;  // it holds the lock
  cudaSetDevice(device_);
  const std::unique_lock lock(mutex_, patience_with_nccl);
  if (lock && comm_) ncclCommAbort(std::exchange(comm_, nullptr));
}

std::string describe(ncclResult_t result) {
  const char* detail = ncclGetLastError(nullptr);
  return fmt::format("{}{}{}", ncclGetErrorString(result), detail && *detail ? ": " : "",
                     detail ? detail : "");
}

void Connections::add(std::shared_ptr<Connection> connection) {
  const std::scoped_lock lock(mutex_);
  open_.push_back(std::move(connection));
}

void Connections::remove(const std::shared_ptr<Connection>& connection) {
  const std::scoped_lock lock(mutex_);
  std::erase(open_, connection);
}

std::string Connections::error(double deadline_s) {
  std::uint64_t calls = 0;
  bool in_call = false;
  for (const std::shared_ptr<Connection>& connection : all()) {
    const ncclResult_t state = connection->state();
    if (!accepted(state)) return "NCCL: " + describe(state);
    calls += connection->calls();
    in_call = in_call || connection->calls() % 2 == 1;
  }
  if (seconds_in_call(in_call ? calls : 0) <= deadline_s) return {};
  return fmt::format("NCCL: a call has not returned for {:.3g} s", deadline_s);
}

/// How long the same call has been seen; time in which the process was suspended does not count.
double Connections::seconds_in_call(std::uint64_t calls) {
  const double now = now_s(), passed_s = std::min(now - std::exchange(last_look_s_, now), 1.0);
  const bool same = std::exchange(seen_calls_, calls) == calls && calls != 0;
  in_call_s_ = same ? in_call_s_ + passed_s : 0;
  return in_call_s_;
}

void Connections::abort_within_patience() const {
  std::vector<std::future<void>> ends;
  for (const std::shared_ptr<Connection>& connection : all()) {
    auto done = std::make_shared<std::promise<void>>();
    ends.push_back(done->get_future());
    std::thread([connection, done] {
      connection->abort();
      done->set_value();
    }).detach();
  }
  const auto end = std::chrono::steady_clock::now() + 2 * patience_with_nccl;
  for (const std::future<void>& ended : ends) ended.wait_until(end);
}

std::vector<std::shared_ptr<Connection>> Connections::all() const {
  const std::scoped_lock lock(mutex_);
  return open_;
}

}  // namespace lockstep::nccl
