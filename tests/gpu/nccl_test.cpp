// NCCL between ranks that may share one GPU. Run under mpirun with 1, 2 and 4 ranks.
#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/worlds/nccl.hpp"
#include "lockstep/device/gpus.hpp"
#include "lockstep/liveness/heartbeat.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "tests/support/harness/mpi_world.hpp"
#include "tests/support/laws/reals.hpp"
#include "tests/support/laws/sums.hpp"
#include "tests/support/laws/verbs.hpp"

using namespace lockstep;
using namespace lockstep::device;
using cuda::check_cuda;
using lockstep::test::is_sum;
using lockstep::test::on_every_rank;
using lockstep::test::small_integers;
using lockstep::test::world;

namespace {

/// The ranks of a node share its GPUs in turn.
int own_gpu(comm::Control& control) {
  const comm::Nodes nodes = comm::gather_nodes(control, comm::place_of_process("host"));
  return static_cast<int>(nodes.local_index(control.rank()) % look_at_gpus().gpus.size());
}

/// This rank's GPU, a control and NCCL between them.
struct Ring {
  explicit Ring(double deadline_s)
      : control(test::make_control(60)),
        gpu(own_gpu(*control)),
        heartbeat(liveness::start_heartbeat({"host", 60, 120, 1, [](int) {}, control->activity},
                                            *control)),
        nccl(comm::make_nccl_communicator(*control, {deadline_s, true, true, find_absence()})) {}

  comm::FindAbsence find_absence() const {
    if (!heartbeat) return {};
    return [this](double waited_s) { return heartbeat->find_absence(waited_s); };
  }

  void sum(float* data, std::size_t count, std::string_view name) const {
    nccl->all_reduce(comm::elements(data, count), comm::Reduction::sum, name, nccl->network());
  }

  comm::Control* control;
  cuda::CudaDevice gpu;
  std::unique_ptr<liveness::Heartbeat> heartbeat;
  std::unique_ptr<comm::Communicator> nccl;
};

bool no_gpu() {
  const std::string absence = look_at_gpus().absence;
  if (!absence.empty()) std::cout << "SKIPPED: " << absence << '\n';
  return !absence.empty();
}

class OnDevice {
 public:
  explicit OnDevice(const std::vector<float>& values)
      : buffer_(values.size() * sizeof(float), "test"), count_(values.size()) {
    check_cuda(cudaMemcpy(buffer_.data(), values.data(), buffer_.size(), cudaMemcpyHostToDevice),
               "cudaMemcpy");
    // The copy from pageable memory may not have finished, and NCCL's stream would not wait for it.
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  float* data() const { return buffer_.as<float>(); }
  std::vector<float> values() const {
    std::vector<float> values(count_);
    check_cuda(cudaMemcpy(values.data(), buffer_.data(), buffer_.size(), cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    return values;
  }

 private:
  cuda::DeviceBuffer buffer_;
  std::size_t count_;
};

class DeviceMemory final : public lockstep::test::Memory {
 public:
  std::shared_ptr<void> copy_in(const std::vector<std::byte>& bytes) override {
    auto buffer = std::make_shared<cuda::DeviceBuffer>(bytes.size(), "test");
    check_cuda(cudaMemcpy(buffer->data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
               "cudaMemcpy");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return {buffer, buffer->data()};
  }
  std::vector<std::byte> copy_out(const void* data, std::size_t bytes) override {
    std::vector<std::byte> copy(bytes);
    check_cuda(cudaMemcpy(copy.data(), data, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return copy;
  }
};

using Fault = std::string (*)(comm::Communicator&, lockstep::test::Memory&);

/// A law that MPI's communicator keeps, too.
void require_none(Fault law) {
  if (no_gpu()) return;
  Ring ring(60);
  DeviceMemory memory;
  const std::string fault = law(*ring.nccl, memory);
  CHECK(fault == "");
  REQUIRE(on_every_rank(fault.empty()));
}

/// What this rank's `group` throws when the last rank of the world never joins its second sum.
/// Nothing on that rank.
std::string without_last(Ring& ring, comm::Communicator& group) {
  const OnDevice data(small_integers(ring.nccl->rank(), 100000));
  const comm::Elements all = comm::elements(data.data(), 100000);
  // The connections are made in the first sum, with all ranks.
  group.all_reduce(all, comm::Reduction::sum, "first", group.network());
  group.network().synchronize();
  if (ring.nccl->rank() == ring.nccl->world() - 1) return {};
  ring.nccl->begin_step(12);
  group.activity.begin_step(12);
  group.all_reduce(all, comm::Reduction::sum, "bucket 7", group.network());
  try {
    const comm::Waiting waiting(group.activity, 7, 100000);  // as the reducer does
    group.network().synchronize();                           // the abort wakes it
    for (;;) group.progress();
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("every verb of NCCL is exact, for every type, group and length", "[gpu][nccl]") {
  require_none(lockstep::test::fault_of_verbs);
}

TEST_CASE("NCCL's collectives of groups in flight together do not mix", "[gpu][nccl]") {
  require_none(lockstep::test::fault_of_groups_together);
}

TEST_CASE("NCCL's messages keep their order, and exchanges do not block", "[gpu][nccl]") {
  require_none(lockstep::test::fault_of_messages);
}

TEST_CASE("NCCL's groups split from a group know their ranks", "[gpu][nccl]") {
  require_none(lockstep::test::fault_of_nested_groups);
}

TEST_CASE("wrong arguments to NCCL are errors that name the collective", "[gpu][nccl]") {
  require_none(lockstep::test::fault_of_arguments);
}

TEST_CASE("NCCL's sum of small integers is exact on every rank, for any length", "[gpu][nccl]") {
  if (no_gpu()) return;
  Ring ring(60);
  for (const std::size_t count : {1, 2, 17, 1023, 4099, 131071, 1000003}) {
    const OnDevice data(small_integers(ring.nccl->rank(), count));
    ring.sum(data.data(), count, "test");
    ring.nccl->network().synchronize();
    INFO(count << " floats");
    REQUIRE(on_every_rank(is_sum(data.values())));
  }
}

TEST_CASE("NCCL gives all ranks the same bits, the same in each run", "[gpu][nccl]") {
  if (no_gpu()) return;
  Ring ring(60);
  const std::vector<float> mine = test::reals(ring.nccl->rank(), 250007);
  std::string first;
  for (int run = 0; run < 3; ++run) {
    const OnDevice data(mine);
    ring.sum(data.data(), mine.size(), "test");
    ring.nccl->network().synchronize();
    const std::vector<float> got = data.values();
    const std::string bits(reinterpret_cast<const char*>(got.data()), got.size() * sizeof(float));
    if (run == 0) first = ring.control->broadcast(bits, "bits");
    REQUIRE(on_every_rank(bits == first));
  }
}

TEST_CASE("a rank that never joins NCCL's sum is named to the others within the deadline",
          "[gpu][nccl]") {
  if (no_gpu()) return;
  const int absent = world().facts().world - 1;
  if (absent == 0) {
    std::cout << "SKIPPED: one rank has no other rank to miss\n";
    return;
  }
  // The world's sum, and one of a group.
  for (const bool grouped : {false, true}) {
    Ring ring(3);
    const auto group = ring.nccl->split(0, ring.nccl->rank(), "everyone");
    const double start_s = now_s();
    const std::string said = without_last(ring, grouped ? *group : *ring.nccl);
    INFO(said);
    const std::string where =
        grouped ? "step 12, bucket 7 of group everyone:" : "step 12, bucket 7:";
    const bool right = ring.nccl->rank() == absent ||
                       (said.find(where) != std::string::npos &&
                        said.find("rank " + std::to_string(absent)) != std::string::npos &&
                        now_s() - start_s < 20);
    CHECK(right);
    REQUIRE(on_every_rank(right));
  }
}
