// The communicator over NCCL, between ranks that are threads of this process. NCCL and CUDA are
// emulated: tests/emulated/cuda/nccl.hpp.
#include <cuda_runtime.h>
#include <nccl.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/worlds/nccl.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "tests/emulated/cuda/gpu.hpp"
#include "tests/emulated/ranks.hpp"
#include "tests/support/laws/verbs.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::comm;
using Catch::Matchers::Contains;
using cuda::check_cuda;
using test::ranks_tell;

class DeviceMemory final : public test::Memory {
 public:
  std::shared_ptr<void> copy_in(const std::vector<std::byte>& bytes) override {
    auto buffer = std::make_shared<cuda::DeviceBuffer>(bytes.size(), "test");
    check_cuda(cudaMemcpyAsync(buffer->data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice,
                               stream_.get()),
               "cudaMemcpyAsync");
    stream_.synchronize();
    return {buffer, buffer->data()};
  }
  std::vector<std::byte> copy_out(const void* data, std::size_t bytes) override {
    std::vector<std::byte> copy(bytes);
    check_cuda(cudaMemcpyAsync(copy.data(), data, bytes, cudaMemcpyDeviceToHost, stream_.get()),
               "cudaMemcpyAsync");
    stream_.synchronize();
    return copy;
  }

 private:
  cuda::CudaStream stream_;
};

using Fault = std::string (*)(Communicator&, test::Memory&);

void require_none(Fault law, const std::vector<int>& worlds = {1, 2, 3, 4, 6}) {
  for (const int world : worlds) {
    INFO(world << " ranks");
    const auto told = ranks_tell(world, [&](Control& control) {
      const auto communicator = make_nccl_communicator(control, {.deadline_s = 60});
      DeviceMemory memory;
      return law(*communicator, memory);
    });
    CHECK(told == std::vector<std::string>(static_cast<std::size_t>(world)));
  }
}

/// One rank of some whose calls do not fit.
struct Rank {
  Communicator& world;
  DeviceMemory& memory;
  std::shared_ptr<void> data = memory.copy_in(std::vector<std::byte>(4096));
  Elements of(std::size_t count, ElementType type = ElementType::f32) const {
    return {data.get(), count, type};
  }
};

/// What each rank is told after these calls: it waits until it learns that something is wrong.
std::vector<std::string> told_after(int ranks, const std::function<void(Rank&)>& calls,
                                    double deadline_s = 30) {
  return ranks_tell(ranks, [&](Control& control) -> std::string {
    const auto world = make_nccl_communicator(control, {.deadline_s = deadline_s});
    DeviceMemory memory;
    Rank rank{*world, memory};
    world->begin_step(4);
    calls(rank);
    const double start_s = now_s();
    while (now_s() - start_s < 60) {
      world->network().synchronize();
      world->progress();
    }
    return "nothing";
  });
}

}  // namespace

TEST_CASE("over NCCL every verb is exact, for every type, group and length", "[nccl][verbs]") {
  require_none(test::fault_of_verbs);
}

TEST_CASE("over NCCL collectives of groups in flight together do not mix", "[nccl][verbs]") {
  require_none(test::fault_of_groups_together);
}

TEST_CASE("over NCCL messages keep their order, and exchanges do not block", "[nccl][verbs]") {
  require_none(test::fault_of_messages);
}

TEST_CASE("over NCCL groups of groups know their ranks, and a group of one moves nothing",
          "[nccl][verbs]") {
  require_none(test::fault_of_nested_groups);
}

TEST_CASE("over NCCL wrong arguments are errors that name the collective", "[nccl][verbs]") {
  require_none(test::fault_of_arguments);
}

TEST_CASE("over NCCL the laws hold when streams run only while the host waits", "[nccl][verbs]") {
  emulated::conditions().streams = emulated::Streams::late;
  require_none(test::fault_of_groups_together, {4});
  emulated::conditions().streams = emulated::Streams::others_first;
  require_none(test::fault_of_messages, {3});
}

TEST_CASE("ranks that call NCCL with different arguments learn what each of them called",
          "[nccl][misuse]") {
  using Calls = std::function<void(Rank&)>;
  const auto sum = [](Rank& rank, Elements what) {
    rank.world.all_reduce(what, Reduction::sum, "bucket 3", rank.world.network());
  };
  struct Wrong {
    Calls calls;
    std::string one, other;
  };
  const std::vector<Wrong> wrongs{
      {[&](Rank& rank) { sum(rank, rank.of(rank.world.rank() == 1 ? 8 : 7)); },
       "all-reduce of 8 elements of type 7 (sum)", "all-reduce of 7 elements of type 7 (sum)"},
      {[&](Rank& rank) {
         sum(rank, rank.of(7, rank.world.rank() == 1 ? ElementType::i32 : ElementType::f32));
       },
       "all-reduce of 7 elements of type 2 (sum)", "all-reduce of 7 elements of type 7 (sum)"},
      {[&](Rank& rank) {
         if (rank.world.rank() == 1)
           rank.world.broadcast(rank.of(7), 0, "bucket 3", rank.world.network());
         else
           sum(rank, rank.of(7));
       },
       "broadcast of 7 elements of type 7 from rank 0", "all-reduce of 7 elements of type 7 (sum)"},
      {[&](Rank& rank) {
         rank.world.broadcast(rank.of(7), rank.world.rank() == 1, "weights", rank.world.network());
       },
       "from rank 1", "from rank 0"},
      {[&](Rank& rank) {
         rank.world.together([&] {
           const int other = 1 - rank.world.rank();
           rank.world.send(rank.of(5), other, "values", rank.world.network());
           rank.world.receive(rank.of(6), other, "values", rank.world.network());
         });
       },
       "send of 5 elements of type 7 to rank", "receive of 6 elements of type 7 from rank"},
  };
  for (const Wrong& wrong : wrongs)
    for (const std::string& said : told_after(2, wrong.calls)) {
      CHECK_THAT(said, Contains("NCCL: invalid usage: rank "));
      CHECK_THAT(said, Contains(wrong.one) && Contains(wrong.other));
    }
}

TEST_CASE("ranks whose calls over NCCL wait for each other are told so", "[nccl][misuse]") {
  // Both send before they receive, without together().
  for (const std::string& said : told_after(2, [](Rank& rank) {
         const int other = 1 - rank.world.rank();
         rank.world.send(rank.of(5), other, "there", rank.world.network());
         rank.world.receive(rank.of(5), other, "back", rank.world.network());
       }))
    CHECK_THAT(said, Contains("wait for each other for ever") && Contains("send of 5 elements"));
  // Two groups of the same ranks, in different orders.
  for (const std::string& said : told_after(3, [](Rank& rank) {
         const auto one = rank.world.split(0, rank.world.rank(), "one");
         const auto two = rank.world.split(0, -rank.world.rank(), "two");
         Communicator* order[] = {one.get(), two.get()};
         if (rank.world.rank() == 2) std::swap(order[0], order[1]);
         for (Communicator* group : order)
           group->all_reduce(rank.of(3), Reduction::max, "norms", group->network());
         rank.world.network().synchronize();
         for (;;) rank.world.progress();
       }))
    CHECK_THAT(said, Contains("wait for each other for ever") && Contains("all-reduce of 3"));
}

TEST_CASE("a message over NCCL that no rank takes ends at the deadline", "[nccl][misuse]") {
  const auto told = told_after(
      2,
      [](Rank& rank) {
        if (rank.world.rank() == 0)
          rank.world.send(rank.of(5), 1, "there", rank.world.network());
        else
          throw Error("gone");
      },
      0.5);
  CHECK_THAT(told[0], Contains("step 4, there: no reduction has ended for 0.5 s"));
  CHECK(told[1] == "gone");
}

TEST_CASE("the emulated NCCL does not let one call follow another before it is done, nor an abort",
          "[nccl][misuse]") {
  const auto told = ranks_tell(2, [](Control& control) -> std::string {
    ncclUniqueId id{};
    if (control.rank() == 0) ncclGetUniqueId(&id);
    const std::string bytes = control.broadcast({id.internal, sizeof id.internal}, "id");
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    if (ncclCommInitRankConfig(&comm, 2, id, control.rank(), &config) != ncclInProgress)
      return "the start did not take its time";
    const auto settle = [&] {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
      return state;
    };
    if (settle() != ncclSuccess) return ncclGetLastError(nullptr);
    const cuda::CudaStream stream, another;
    const cuda::DeviceBuffer data(64, "test");
    const auto sum = [&](const cuda::CudaStream& where) {
      return ncclAllReduce(data.data(), data.data(), 4, ncclFloat32, ncclSum, comm, where.get());
    };
    if (sum(stream) != ncclInProgress) return "a call did not take its time";
    if (sum(stream) != ncclInvalidUsage) return "a second call was accepted at once";
    if (settle() != ncclSuccess) return ncclGetLastError(nullptr);
    stream.get();
    check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    if (ncclAllReduce(data.data(), data.data(), 100, ncclFloat32, ncclSum, comm, stream.get()) !=
        ncclInvalidArgument)
      return "memory beyond the allocation was accepted";
    if (ncclCommDestroy(comm) != ncclInvalidUsage) return "destroyed before it was finalized";
    control.barrier("before the abort");
    ncclCommAbort(comm);
    if (sum(another) != ncclInvalidArgument) return "used after the abort";
    ncclResult_t state = ncclSuccess;
    return ncclCommGetAsyncError(comm, &state) == ncclInvalidArgument ? ""
                                                                      : "asked after the abort";
  });
  CHECK(told == std::vector<std::string>(2));
}
