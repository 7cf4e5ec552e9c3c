// Batch norms whose statistics are those of several ranks' rows, over NCCL on emulated GPUs. The
// ranks are threads.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/recompute.hpp"
#include "lockstep/comm/worlds/nccl.hpp"
#include "lockstep/train/decide/micro_batches.hpp"
#include "lockstep/train/trainer.hpp"
#include "tests/emulated/made_rows.hpp"
#include "tests/emulated/ranks.hpp"
#include "tests/support/networks/sketch.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::test;

constexpr std::size_t rows = 8;

struct Asked {
  std::size_t ranks = 1, norm_ranks = 1, micro_rows = rows;
  bool fused = false;
  Precision precision = Precision::fp32;
  std::vector<std::size_t> steps = {rows};  ///< their rows
  std::string recompute = "none";
};

struct Left {
  std::vector<float> weights;  ///< learned ones, then running statistics
  std::uint32_t hash = 0;
};

Left train_on(const nn::Network& network, comm::Communicator& world, const Asked& asked) {
  const auto backend = make_cuda_backend(world.rank());
  const MadeRows made(network, rows);
  train::TrainerSpec spec;
  spec.network = network;
  spec.program.batch = asked.micro_rows;
  spec.program.precision = asked.precision;
  spec.program.fuse_norms = asked.fused;
  spec.program.mean = spec.program.stddev = std::vector<float>(network.input.channels, 0.5f);
  spec.program.recompute = parse_recompute(asked.recompute, "recompute");
  spec.norm_ranks = asked.norm_ranks;
  spec.bucket_bytes = 1 << 10;
  train::Trainer trainer(spec, *backend, world);
  for (std::size_t step = 0; step < asked.steps.size(); ++step) {
    const std::size_t global = asked.steps[step];
    std::size_t first = 0, count = 0;
    for (int rank = 0; rank <= world.rank(); ++rank) {
      first += count;
      count = 0;
      for (const train::MicroBatch& part :
           train::plan_micro_batches(global, world.world(), rank, asked.micro_rows))
        count += part.rows;
    }
    world.begin_step(step + 1);
    trainer.step(made.batch(first, count, step), global, 0.1f);
  }
  Left left;
  const auto& parameters = trainer.parameters();
  for (std::size_t slice = 0; slice < parameters.layout().slices.size(); ++slice) {
    const std::vector<float> values = exported(parameters, Part::weights, slice);
    left.weights.insert(left.weights.end(), values.begin(), values.end());
  }
  left.hash = parameters.hash();
  return left;
}

/// By rank. An error of a rank is a failure.
std::vector<Left> trained(const nn::Network& network, const Asked& asked) {
  std::vector<Left> left(asked.ranks);
  const auto told = ranks_tell(static_cast<int>(asked.ranks), [&](Control& control) {
    const auto world = comm::make_nccl_communicator(control, {.deadline_s = 60});
    left[static_cast<std::size_t>(control.rank())] = train_on(network, *world, asked);
    return std::string();
  });
  for (const std::string& error : told) REQUIRE(error == "");
  return left;
}

bool agree(const std::vector<Left>& ranks) {
  for (const Left& one : ranks)
    if (one.hash != ranks[0].hash) return false;
  return true;
}

double apart(const Left& a, const Left& b) {
  return distance(a.weights, std::vector<double>(b.weights.begin(), b.weights.end()));
}

}  // namespace

TEST_CASE("GPUs that share batch norm's statistics step as one with all rows does",
          "[norm_ranks]") {
  for (const nn::Network& network : {bottlenecks(), grouped()}) {
    const Left alone = trained(network, {})[0];
    for (const std::size_t ranks : {2u, 4u}) {
      const auto shared =
          trained(network, {.ranks = ranks, .norm_ranks = ranks, .micro_rows = rows / ranks});
      const auto others = trained(network, {.ranks = ranks, .micro_rows = rows / ranks});
      INFO(network.name << ", " << ranks << " ranks: " << apart(shared[0], alone) << ", apart "
                        << apart(others[0], alone));
      CHECK(agree(shared));
      CHECK(apart(shared[0], alone) < 1e-5);
      CHECK(apart(others[0], alone) > 1e-3);
    }
  }
}

TEST_CASE("rows count alike in statistics that GPUs share, however many a rank has, or none",
          "[norm_ranks]") {
  const nn::Network network = bottlenecks();
  for (const std::size_t last : {7u, 5u, 3u}) {
    const Left alone = trained(network, {.steps = {last}})[0];
    const auto shared =
        trained(network, {.ranks = 4, .norm_ranks = 4, .micro_rows = 2, .steps = {last}});
    INFO(last << " rows: " << apart(shared[0], alone));
    CHECK(agree(shared));
    CHECK(apart(shared[0], alone) < 1e-5);
  }
}

TEST_CASE("each group of GPUs has its own statistics, as a micro-batch of one has",
          "[norm_ranks]") {
  const nn::Network network = bottlenecks();
  const Left alone = trained(network, {.micro_rows = 4})[0];
  const auto pairs = trained(network, {.ranks = 4, .norm_ranks = 2, .micro_rows = 2});
  CHECK(agree(pairs));
  // Learned ones: running statistics of micro-batches come one after the other, those of ranks at
  // once.
  const auto learned = [&](const Left& left) {
    std::size_t count = 0;
    for (const nn::Tensor& tensor : nn::tensors(network))
      if (nn::learned(tensor.role)) count += tensor.count();
    return std::vector<float>(left.weights.begin(),
                              left.weights.begin() + static_cast<std::ptrdiff_t>(count));
  };
  const std::vector<float> want = learned(alone);
  CHECK(distance(learned(pairs[0]), std::vector<double>(want.begin(), want.end())) < 1e-5);
}

TEST_CASE("shared statistics have the same bits where backward makes values again",
          "[norm_ranks]") {
  const nn::Network network = bottlenecks();
  for (const bool fused : {false, true}) {
    Asked asked{.ranks = 2, .norm_ranks = 2, .micro_rows = 2, .fused = fused, .steps = {8, 7, 8}};
    asked.precision = fused ? Precision::fp16 : Precision::bf16;
    const auto plain = trained(network, asked);
    CHECK(agree(plain));
    asked.recompute = "2";
    CHECK(trained(network, asked)[0].hash == plain[0].hash);
  }
}
