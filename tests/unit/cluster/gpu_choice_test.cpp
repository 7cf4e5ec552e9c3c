#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/device/gpus.hpp"

using namespace lockstep;
using namespace lockstep::device;
using Catch::Matchers::Contains;
using cluster::choose_gpu;
using cluster::require_own_gpus;

namespace {

cluster::RankInfo local(int rank, int size) {
  cluster::RankInfo info;
  info.local_rank = rank;
  info.local_size = size;
  info.host = "node7";
  return info;
}

}  // namespace

TEST_CASE("a rank that sees one GPU uses it, one that sees several uses its local rank's",
          "[gpu_choice]") {
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(choose_gpu(local(rank, 4), 1, false) == 0);
    CHECK(choose_gpu(local(rank, 4), 4, false) == static_cast<std::size_t>(rank));
    CHECK(choose_gpu(local(rank, 4), 8, false) == static_cast<std::size_t>(rank));
  }
}

TEST_CASE("every rank of a machine with too few GPUs says both numbers and what to change",
          "[gpu_choice]") {
  for (int rank = 0; rank < 4; ++rank)
    CHECK_THROWS_WITH(choose_gpu(local(rank, 4), 3, false),
                      Contains("4 ranks were started on node7, but 3 GPUs are visible") &&
                          Contains("--ntasks-per-node=3") && Contains("--gpus-per-node=4") &&
                          Contains("--share-gpu"));
}

TEST_CASE("ranks that may share go round the GPUs", "[gpu_choice]") {
  CHECK(choose_gpu(local(0, 4), 3, true) == 0);
  CHECK(choose_gpu(local(2, 4), 3, true) == 2);
  CHECK(choose_gpu(local(3, 4), 3, true) == 0);
}

TEST_CASE("two ranks on one GPU are named with it; the same bus id on two machines is two GPUs",
          "[gpu_choice]") {
  CHECK_NOTHROW(require_own_gpus({{"a", "0000:17:00.0"}, {"a", "0000:3B:00.0"}}));
  CHECK_NOTHROW(require_own_gpus({{"a", "0000:17:00.0"}, {"b", "0000:17:00.0"}}));
  CHECK_THROWS_WITH(
      require_own_gpus({{"b", "0000:17:00.0"}, {"a", "0000:17:00.0"}, {"a", "0000:17:00.0"}}),
      Contains("ranks 1 and 2") && Contains("0000:17:00.0") && Contains("--share-gpu"));
}

TEST_CASE("there are GPUs, or it is said why there are none", "[gpu_choice]") {
  const VisibleGpus seen = look_at_gpus();
  CHECK(seen.gpus.empty() != seen.absence.empty());
}
