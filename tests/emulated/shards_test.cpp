// Shards on GPUs, over NCCL: the same bits on any number of ranks, which are threads here.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/share.hpp"
#include "lockstep/comm/worlds/nccl.hpp"
#include "lockstep/reduce/tree.hpp"
#include "lockstep/train/trainer.hpp"
#include "tests/emulated/cuda/gpu.hpp"
#include "tests/emulated/made_rows.hpp"
#include "tests/emulated/ranks.hpp"
#include "tests/support/networks/sketch.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::test;

constexpr std::size_t shards = 4, full_rows = 8, last_rows = 3;

/// Of the first `rows` of a global batch, those of this rank's shards.
data::Batch batch_of(const MadeRows& rows, const reduce::ShardRange& own, std::size_t global,
                     std::size_t index) {
  const std::size_t first = even_begin(global, shards, own.first);
  return rows.batch(first, even_begin(global, shards, own.last) - first, index);
}

/// What a rank's training leaves: three steps, one of them with fewer rows than shards.
std::string train_on(const nn::Network& network, Precision precision, comm::Communicator& world,
                     int device, bool graph) {
  const auto backend = make_cuda_backend(device);
  const MadeRows rows(network, full_rows);
  train::TrainerSpec spec;
  spec.network = network;
  spec.program.batch = full_rows / shards;
  spec.program.precision = precision;
  spec.program.mean = spec.program.stddev = std::vector<float>(network.input.channels, 0.5f);
  spec.program.keeps_average = true;
  spec.average = {.decay = 0.9};
  spec.clip_norm = 1;
  spec.shards = shards;
  spec.bucket_bytes = 1 << 10;
  spec.graph = graph;
  train::Trainer trainer(spec, *backend, world);
  const reduce::ShardRange own = reduce::shards_of(shards, static_cast<std::size_t>(world.world()),
                                                   static_cast<std::size_t>(world.rank()));
  for (std::size_t step = 0; step < 6; ++step) {
    const std::size_t global = step == 3 ? last_rows : full_rows;
    world.begin_step(step + 1);
    trainer.step(batch_of(rows, own, global, step), global, 0.1f);
  }
  return fmt::format("{:08x}", trainer.parameters().hash());
}

}  // namespace

TEST_CASE("shards on GPUs have the same bits on any number of ranks", "[shards]") {
  for (const nn::Network& network : {bottlenecks(), padded_shortcuts()})
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      std::vector<std::string> hashes;
      for (const int ranks : {1, 2, 3, 4}) {
        const auto told = ranks_tell(ranks, [&](comm::Control& control) {
          const auto world = comm::make_nccl_communicator(control, {.deadline_s = 60});
          return train_on(network, precision, *world, control.rank(), false);
        });
        hashes.insert(hashes.end(), told.begin(), told.end());
      }
      const auto recorded = ranks_tell(1, [&](comm::Control& control) {
        const auto world = comm::make_nccl_communicator(control, {.deadline_s = 60});
        return train_on(network, precision, *world, 0, true);
      });
      hashes.push_back(recorded[0]);
      INFO(network.name << ", " << to_string(precision));
      CHECK(hashes == std::vector<std::string>(hashes.size(), hashes[0]));
      CHECK(hashes[0].size() == 8);
    }
}
