#include "ports/nccl/connection.hpp"

#include <fmt/core.h>

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "lockstep/base/error.hpp"
#include "ports/cuda/runtime/check.hpp"

namespace lockstep::comm {
namespace {

constexpr std::chrono::seconds patience_with_nccl{5};

}  // namespace

ncclResult_t Connection::open(const ncclUniqueId& id, int rank, int world) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  cuda::check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
  const std::scoped_lock lock(mutex_);
  return ncclCommInitRankConfig(&comm_, world, id, rank, &config);
}

ncclResult_t Connection::split(int colour, int key, std::shared_ptr<Connection> part) {
  part_ = std::move(part);
  part_->device_ = device_;
  return call([&](ncclComm_t comm) {
    // A part inherits the configuration, so it does not block either.
    return ncclCommSplit(comm, colour, key, &part_->comm_, nullptr);
  });
}

ncclResult_t Connection::call(const std::function<ncclResult_t(ncclComm_t)>& start) {
  const std::scoped_lock lock(mutex_);
  return comm_ ? start(comm_) : ncclInvalidUsage;
}

ncclResult_t Connection::state() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !comm_) return ncclInProgress;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

ncclResult_t Connection::place(int& rank, int& world) {
  return call([&](ncclComm_t comm) {
    const ncclResult_t asked = ncclCommUserRank(comm, &rank);
    return asked == ncclSuccess ? ncclCommCount(comm, &world) : asked;
  });
}

ncclResult_t Connection::begin_to_close() {
  const std::scoped_lock lock(mutex_);
  return comm_ ? ncclCommFinalize(comm_) : ncclSuccess;
}

void Connection::close() {
  const std::scoped_lock lock(mutex_);
  if (comm_) ncclCommDestroy(std::exchange(comm_, nullptr));
}

void Connection::abort() {
  cudaSetDevice(device_);  // a new thread is on device 0 and would make a context there
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

std::string Connections::error() const {
  for (const std::shared_ptr<Connection>& connection : all()) {
    const ncclResult_t state = connection->state();
    if (state != ncclSuccess && state != ncclInProgress) return "NCCL: " + describe(state);
  }
  return {};
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

}  // namespace lockstep::comm
