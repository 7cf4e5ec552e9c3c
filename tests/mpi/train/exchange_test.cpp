#include "reduce/bucket_exchange.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "lockstep/device/host_stream.hpp"
#include "tests/support/harness/mpi_world.hpp"

using namespace lockstep;
using namespace lockstep::reduce;
using namespace lockstep::device;
using lockstep::test::on_every_rank;
using lockstep::test::world;

TEST_CASE("slices that become final in a different order on each rank give the exact sums",
          "[mpi][exchange]") {
  const auto communicator = test::make_communicator(30);
  const int rank = communicator->rank(), ranks = communicator->world();
  std::vector<Extent> slices;
  std::mt19937 sizes(5), order(static_cast<unsigned>(rank) + 1);
  std::size_t offset = 0;
  for (int i = 0; i < 40; ++i) {
    slices.push_back({offset, 1 + sizes() % (i % 7 == 0 ? 100000 : 2000)});
    offset = (offset + slices.back().size + 15) / 16 * 16;
  }
  std::vector<float> gradients(offset);
  HostStream compute;
  ExactExchange exchange({.buckets = plan_buckets(slices, 100000)}, *communicator, compute,
                         gradients.data());
  REQUIRE(exchange.buckets().size() > 3);

  std::vector<std::size_t> turn(slices.size());
  std::iota(turn.begin(), turn.end(), 0);
  for (int step = 0; step < 5; ++step) {
    exchange.begin();
    std::shuffle(turn.begin(), turn.end(), order);
    for (const std::size_t s : turn) {
      std::fill_n(gradients.begin() + static_cast<std::ptrdiff_t>(slices[s].offset), slices[s].size,
                  static_cast<float>((rank + 1) * (static_cast<int>(s) + step)));
      exchange.ready(s);
      exchange.progress();
    }
    bool right = exchange.started() == exchange.buckets().size();
    for (std::size_t b = 0; b < exchange.buckets().size(); ++b) {
      exchange.wait(b);
      const Bucket& bucket = exchange.buckets()[b];
      for (std::size_t s = bucket.first_slice; s < bucket.last_slice; ++s) {
        const int sum = ranks * (ranks + 1) / 2 * (static_cast<int>(s) + step);
        for (std::size_t i = 0; i < slices[s].size; ++i)
          right = right && gradients[slices[s].offset + i] == static_cast<float>(sum);
      }
    }
    REQUIRE(on_every_rank(right));
  }
}
