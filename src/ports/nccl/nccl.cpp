#include "lockstep/comm/worlds/nccl.hpp"
#include "lockstep/comm/collected.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/comm/worlds/world.hpp"
#include "lockstep/device/idle.hpp"
#include "lockstep/liveness/watch.hpp"
#include "ports/cuda/runtime/range.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "ports/nccl/connection.hpp"

namespace lockstep::nccl {
namespace {

/// How long a rank that closes NCCL waits for the others to do so.
double closing_s(double deadline_s) { return std::clamp(deadline_s / 4, 2.0, 30.0); }

/// Sets the variables that NCCL reads when it starts. Values that the user has set take precedence.
void prepare_environment(const comm::NcclSpec& spec, int rank) {
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

/// What all groups of a rank share.
struct Site {
  Site(const comm::NcclSpec& spec, const comm::ActivityTracker& of_rank)
      : deadline_s(spec.deadline_s), find_absence(spec.find_absence), activity(of_rank) {}

  const double deadline_s;
  const comm::FindAbsence find_absence;
  const comm::ActivityTracker activity;
  cuda::CudaStream network{cuda::CudaStream::Priority::high};
  std::shared_ptr<Connections> connections = std::make_shared<Connections>();
  std::unique_ptr<liveness::Watch> watch;  // last: its thread uses the others

  void rethrow() const {
    if (watch) watch->rethrow();
  }
  bool failed() const { return watch && watch->failed(); }

  /// Called by the first thread that misses a rank.
  std::string find_missing(double waited_s) const {
    const auto absence = find_absence ? find_absence(waited_s) : std::nullopt;
    return absence ? absence->text : "the ranks' heartbeats do not show which one is missing";
  }

  void start_watch() {
    liveness::WatchSpec spec;
    spec.deadline_s = deadline_s;
    int device = 0;
    cuda::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    // A new thread is on device 0 and would make a context there. This one only looks at events,
    // which a capture on another thread must not forbid.
    spec.enter = [device] {
      cudaSetDevice(device);
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
      cudaThreadExchangeStreamCaptureMode(&mode);
    };
    spec.library_error = [all = connections, s = deadline_s] { return all->error(s); };
    spec.find_missing = [this](double waited_s) { return find_missing(waited_s); };
    spec.come_nearer = [this](double waited_s) {
      const auto absence = find_absence ? find_absence(waited_s) : std::nullopt;
      return absence && absence->nearer;
    };
    spec.abort = [all = connections] { all->abort_within_patience(); };
    spec.give_up = [](const std::string& why) {
      log::error(why);
      comm::World::abort(EXIT_FAILURE);
    };
    watch = std::make_unique<liveness::Watch>(std::move(spec));
  }
};

class NcclCommunicator final : public comm::Communicator {
 public:
  /// The world.
  NcclCommunicator(comm::Control& control, const comm::NcclSpec& spec)
      : Communicator(control.activity),
        rank_(control.rank()),
        world_(control.world()),
        site_(std::make_shared<Site>(spec, activity)) {
    if (world_ == 1) return;
    prepare_environment(spec, rank_);
    connect(control);
    site_->connections->add(connection_);
    site_->start_watch();
    leads_ = true;
  }

  /// A part of another group.
  NcclCommunicator(std::shared_ptr<Site> site, std::shared_ptr<Connection> connection, int rank,
                   int world, std::string group)
      : Communicator(site->activity),
        rank_(rank),
        world_(world),
        group_(std::move(group)),
        site_(std::move(site)),
        connection_(std::move(connection)) {}

  ~NcclCommunicator() override {
    const bool aborted = site_->failed();
    if (leads_) site_->watch.reset();
    if (aborted || !connected()) return;
    if (std::uncaught_exceptions() > 0) {
      site_->connections->abort_within_patience();
    } else {
      site_->connections->remove(connection_);
      close();
    }
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  device::Stream& network() override { return site_->network; }
  void begin_step(std::uint64_t step) override {
    if (site_->watch) site_->watch->begin_step(step);
  }
  void progress() override { site_->rethrow(); }

  std::unique_ptr<comm::Communicator> split(std::optional<int> colour, int key,
                                            std::string_view name) override;

  void all_reduce(comm::Elements data, comm::Reduction reduction, std::string_view name,
                  device::Stream& stream) override {
    check_reducible(data, name);
    if (!has_work(*this, data, name, stream)) return;
    start("reduction", name, [=, this](ncclComm_t comm) {
      return ncclAllReduce(data.data, data.data, data.count, type_of(data.type),
                           operation_of(reduction), comm, site_->network.get());
    });
  }

  void reduce_scatter(comm::Elements data, comm::Reduction reduction, std::string_view name,
                      device::Stream& stream) override {
    check_reducible(data, name);
    const std::size_t size = chunk_size(*this, data, name);
    if (!has_work(*this, data, name, stream)) return;
    start("reduce-scatter", name, [=, this](ncclComm_t comm) {
      return ncclReduceScatter(data.data, my_chunk(data, size), size, type_of(data.type),
                               operation_of(reduction), comm, site_->network.get());
    });
  }

  void all_gather(comm::Elements data, std::string_view name, device::Stream& stream) override {
    const std::size_t size = chunk_size(*this, data, name);
    if (!has_work(*this, data, name, stream)) return;
    start("all-gather", name, [=, this](ncclComm_t comm) {
      return ncclAllGather(my_chunk(data, size), data.data, size, type_of(data.type), comm,
                           site_->network.get());
    });
  }

  void broadcast(comm::Elements data, int root, std::string_view name,
                 device::Stream& stream) override {
    check_root(*this, root, name);
    if (!has_work(*this, data, name, stream)) return;
    start("broadcast", name, [=, this](ncclComm_t comm) {
      return ncclBroadcast(data.data, data.data, data.count, type_of(data.type), root, comm,
                           site_->network.get());
    });
  }

  void send(comm::Elements data, int to, std::string_view name, device::Stream& stream) override {
    check_peer(*this, to, name);
    if (!has_work(*this, data, name, stream)) return;
    start("send", name, [=, this](ncclComm_t comm) {
      return ncclSend(data.data, data.count, type_of(data.type), to, comm, site_->network.get());
    });
  }

  void receive(comm::Elements data, int from, std::string_view name,
               device::Stream& stream) override {
    check_peer(*this, from, name);
    if (!has_work(*this, data, name, stream)) return;
    start("receive", name, [=, this](ncclComm_t comm) {
      return ncclRecv(data.data, data.count, type_of(data.type), from, comm, site_->network.get());
    });
  }

  void together(const std::function<void()>& calls) override;
  void repeated(std::string_view name, std::unique_ptr<device::Event> end) override {
    if (site_->watch) site_->watch->started(of_group(name), std::move(end));
  }

 private:
  using Start = std::function<ncclResult_t(ncclComm_t)>;

  bool connected() const { return connection_ != nullptr; }
  void* my_chunk(comm::Elements data, std::size_t size) const {
    return data.part(static_cast<std::size_t>(rank_) * size, size).data;
  }
  std::string of_group(std::string_view name) const { return comm::phase_in(group_, name); }

  void start(const char* verb, std::string_view name, Start call) {
    if (batch_) {
      if (batch_name_.empty()) batch_name_ = name;
      batch_->push_back(std::move(call));
      return;
    }
    site_->rethrow();
    const std::string what = of_group(name);
    const cuda::Range range(fmt::format("{} of {}", verb, what));
    settle(connection_->call(call), what);
    // Of a recording, nothing runs yet, and its events may not be asked: repeated() says when.
    if (!site_->network.recording()) site_->watch->started(what, site_->network.record());
  }

  void connect(comm::Control& control) {
    ncclUniqueId id{};
    if (rank_ == 0) {
      const ncclResult_t made = ncclGetUniqueId(&id);
      check(made == ncclSuccess, fmt::format("ncclGetUniqueId: {}", describe(made)));
    }
    const std::string bytes =
        control.broadcast(std::string(id.internal, sizeof id.internal), "NCCL's id");
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    connection_ = std::make_shared<Connection>();
    connection_->open(id, rank_, world_);
    settle(ncclInProgress, "the start of NCCL");
  }

  /// Waits until NCCL has finished the call, if it has not: only then are its kernels in the
  /// stream, and only then may another call follow.
  void settle(ncclResult_t result, std::string_view what) {
    const double start_s = now_s();
    device::Idle idle;
    // Both results only mean that the call was accepted; state() tells what became of it.
    if (result == ncclSuccess || result == ncclInProgress) result = connection_->state();
    for (; result == ncclInProgress; result = connection_->state()) {
      site_->rethrow();
      if (now_s() - start_s > site_->deadline_s) {
        site_->connections->add(connection_);  // the world's may not be there yet
        site_->connections->abort_within_patience();
        throw Error(fmt::format("{} did not end within {:.3g} s; {}", what, site_->deadline_s,
                                site_->find_missing(site_->deadline_s)));
      }
      idle();
    }
    if (result == ncclSuccess) return;
    const std::string why = describe(result);
    throw Error(fmt::format("{}: NCCL: {}", what, why));
  }

  /// All ranks come here when training is done; a rank that does not come must not hold up the
  /// others.
  void close() {
    const double start_s = now_s();
    connection_->close();
    ncclResult_t state = connection_->state();
    for (device::Idle idle;
         state == ncclInProgress && now_s() - start_s < closing_s(site_->deadline_s); idle())
      state = connection_->state();
    if (state == ncclSuccess) return;
    Connections alone;
    alone.add(connection_);
    alone.abort_within_patience();
  }

  int rank_, world_;
  bool leads_ = false;  ///< made the watch, and so ends it
  std::string group_;   ///< its name; empty for the world
  std::shared_ptr<Site> site_;
  std::shared_ptr<Connection> connection_;
  std::vector<Start>* batch_ = nullptr;  ///< of together()
  std::string batch_name_;
};

// NCCL wants nothing in flight on a communicator that it splits.
std::unique_ptr<comm::Communicator> NcclCommunicator::split(std::optional<int> colour, int key,
                                                            std::string_view name) {
  const std::string what = fmt::format("the split into {}", name);
  require(!colour || *colour >= 0,
          fmt::format("{}: rank {} has the colour {}; a colour is 0 or more", what, rank_,
                      colour.value_or(0)));
  if (!connected()) {
    if (!colour) return nullptr;
    return std::make_unique<NcclCommunicator>(site_, nullptr, 0, 1, std::string(name));
  }
  site_->rethrow();
  site_->network.synchronize();
  site_->rethrow();
  auto part = std::make_shared<Connection>();
  connection_->split(colour.value_or(NCCL_SPLIT_NOCOLOR), key, part);
  settle(ncclInProgress, what);
  if (!colour) return nullptr;
  int rank = 0, world = 1;
  const ncclResult_t asked = part->place(rank, world);
  check(asked == ncclSuccess, fmt::format("{}: NCCL: {}", what, describe(asked)));
  site_->connections->add(part);
  return std::make_unique<NcclCommunicator>(site_, part, rank, world, std::string(name));
}

void NcclCommunicator::together(const std::function<void()>& calls) {
  batch_name_.clear();
  // All calls are judged before NCCL's group begins, because an error must not leave it open.
  const std::vector<Start> batch = comm::collected(batch_, calls);
  if (batch.empty()) return;
  start("exchange", batch_name_, [&](ncclComm_t comm) {
    ncclResult_t result = ncclGroupStart();
    for (const Start& call : batch)
      if (result == ncclSuccess || result == ncclInProgress) result = call(comm);
    const ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
  });
}

}  // namespace

}  // namespace lockstep::nccl

namespace lockstep::comm {

std::unique_ptr<Communicator> make_nccl_communicator(Control& control, const NcclSpec& spec) {
  return std::make_unique<nccl::NcclCommunicator>(control, spec);
}

}  // namespace lockstep::comm
