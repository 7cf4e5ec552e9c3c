// Sums of shards have the same bits on any number of ranks, which are threads here.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/reduce/tree.hpp"
#include "tests/support/queues.hpp"
#include "tests/unit/reduce/exchange_rank.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::reduce;
using namespace lockstep::test;

/// The definition: the left half is the largest power of two that leaves something.
template <class Leaf>
auto tree_sum(std::size_t first, std::size_t last, const Leaf& leaf) -> decltype(leaf(first)) {
  if (last - first == 1) return leaf(first);
  std::size_t left = 1;
  while (2 * left < last - first) left *= 2;
  return tree_sum(first, first + left, leaf) + tree_sum(first + left, last, leaf);
}

struct Said {
  std::string text;
  Said operator+(const Said& more) const { return {"(" + text + more.text + ")"}; }
};

std::string said_of(std::size_t shards, const std::vector<ShardRange>& nodes,
                    const std::function<Said(const ShardRange&)>& sum) {
  const std::vector<std::size_t> additions = additions_after(shards, nodes);
  std::vector<Said> sums;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    sums.push_back(sum(nodes[n]));
    for (std::size_t i = 0; i < additions[n]; ++i) {
      const Said right = sums.back();
      sums.pop_back();
      sums.back() = sums.back() + right;
    }
  }
  std::string all;
  for (const Said& one : sums) all += one.text + " ";
  return all;
}

Said leaf(std::size_t shard) { return {fmt::format("{},", shard)}; }

/// A step of one rank, whose shards have known gradients.
std::vector<float> step_of_shards(Rank& rank, std::size_t shards, std::size_t step) {
  const comm::Communicator& c = rank.communicator;
  const ShardRange own =
      shards_of(shards, static_cast<std::size_t>(c.world()), static_cast<std::size_t>(c.rank()));
  float* arena = rank.parameters->device_pointer(backend::Part::gradients);
  const nn::ArenaLayout& layout = rank.parameters->layout();
  const auto fill = [&](std::size_t shard, std::size_t slice) {
    const nn::Slice& at = layout.slices[slice];
    for (std::size_t i = at.offset; i < at.offset + at.size; ++i)
      arena[i] = gradient_of(static_cast<int>(shard), step, i, rank.learned());
  };
  rank.exchange->begin();
  for (std::size_t shard = own.first; shard < own.last; ++shard) {
    const bool last = shard + 1 == own.last;
    for (std::size_t s = 0; s < layout.moving_slices(); ++s) {
      fill(shard, s);
      if (last) rank.exchange->ready(s);
      rank.exchange->progress();
    }
    if (!last) rank.exchange->keep();
  }
  for (std::size_t b = 0; b < rank.exchange->buckets().size(); ++b) rank.exchange->wait(b);
  rank.exchange->after_update();
  std::vector<float> sums;
  for (std::size_t s = 0; s < layout.moving_slices(); ++s)
    sums.insert(sums.end(), arena + layout.slices[s].offset,
                arena + layout.slices[s].offset + layout.slices[s].size);
  return sums;
}

}  // namespace

TEST_CASE("each rank's part of the tree, and what ranks add of each other's, make the same tree",
          "[shards]") {
  for (std::size_t shards = 1; shards <= 40; ++shards) {
    const std::string whole = tree_sum(0, shards, leaf).text + " ";
    for (std::size_t ranks = 1; ranks <= shards; ++ranks) {
      INFO(shards << " shards on " << ranks << " ranks");
      std::vector<ShardRange> all;
      std::size_t next = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const ShardRange own = shards_of(shards, ranks, rank);
        REQUIRE(own.first == next);
        next = own.last;
        std::vector<ShardRange> leaves;
        for (std::size_t s = own.first; s < own.last; ++s) leaves.push_back({s, s + 1});
        const std::vector<ShardRange> nodes = nodes_of(shards, own);
        std::string of_nodes;
        for (const ShardRange& node : nodes)
          of_nodes += tree_sum(node.first, node.last, leaf).text + " ";
        REQUIRE(said_of(shards, leaves, [](const ShardRange& one) { return leaf(one.first); }) ==
                of_nodes);
        all.insert(all.end(), nodes.begin(), nodes.end());
      }
      REQUIRE(next == shards);
      REQUIRE(said_of(shards, all, [](const ShardRange& node) {
                return tree_sum(node.first, node.last, leaf);
              }) == whole);
    }
  }
}

TEST_CASE(
    "a rank keeps one copy less than the tree has levels, and travels as an all-reduce "
    "where its shards are one node",
    "[shards]") {
  CHECK(most_kept(8, 8) == 0);
  CHECK(most_kept(8, 4) == 1);
  CHECK(most_kept(8, 2) == 2);
  CHECK(most_kept(8, 1) == 3);
  CHECK(most_kept(1024, 1) == 10);
  for (const std::size_t ranks : {1, 2, 4, 8}) {
    CHECK(shard_cost(8, ranks).time == 1);
    CHECK(shard_cost(8, ranks).bytes == 1);
  }
  const auto costs = [](std::size_t shards, std::size_t ranks, double time, double bytes) {
    INFO(shards << " shards on " << ranks << " ranks");
    CHECK(shard_cost(shards, ranks).time == Approx(time).epsilon(0.01));
    CHECK(shard_cost(shards, ranks).bytes == Approx(bytes).epsilon(0.01));
  };
  costs(8, 3, 1.125, 1.33);
  costs(8, 5, 1.25, 1);
  costs(8, 6, 1.5, 1);
  costs(16, 3, 1.125, 1.67);
  costs(16, 7, 1.31, 1.14);
  costs(64, 5, 1.02, 2.2);
  costs(64, 63, 1.97, 1);
}

TEST_CASE("the sum of shards has the bits of one tree on any ranks, in buckets of any size",
          "[shards]") {
  for (const std::size_t shards : {1, 2, 5, 8}) {
    for (std::size_t ranks = 1; ranks <= std::min<std::size_t>(shards, 5); ++ranks)
      for (const std::size_t bucket_bytes : {std::size_t{50'000}, std::size_t{25} << 20}) {
        INFO(shards << " shards on " << ranks << " ranks, buckets of " << bucket_bytes);
        Queues queues;
        const auto told = threads_tell(
            queues, static_cast<int>(ranks), false,
            [&](comm::Communicator& communicator) -> std::string {
              Rank rank(communicator, {.buckets = {}, .shards = shards}, bucket_bytes);
              for (std::size_t step = 0; step < 2; ++step) {
                const std::vector<float> sums = step_of_shards(rank, shards, step);
                std::size_t at = 0;
                for (std::size_t s = 0; s < rank.parameters->layout().moving_slices(); ++s) {
                  const nn::Slice& slice = rank.parameters->layout().slices[s];
                  for (std::size_t i = slice.offset; i < slice.offset + slice.size; ++i, ++at) {
                    const float expected = tree_sum(0, shards, [&](std::size_t shard) {
                      return gradient_of(static_cast<int>(shard), step, i, rank.learned());
                    });
                    if (std::bit_cast<std::uint32_t>(sums[at]) !=
                        std::bit_cast<std::uint32_t>(expected))
                      return fmt::format("step {}, number {}: {}, not {}", step, i, sums[at],
                                         expected);
                  }
                }
              }
              return "";
            });
        CHECK(told == std::vector<std::string>(ranks));
      }
  }
}

TEST_CASE("as many bytes travel as shard_cost() says", "[shards]") {
  const auto bytes_of_step = [](std::size_t shards, int ranks) {
    Queues queues;
    threads_tell(queues, ranks, false, [&](comm::Communicator& communicator) -> std::string {
      Rank rank(communicator, {.buckets = {}, .shards = shards}, 200'000);
      shards > 0 ? step_of_shards(rank, shards, 0) : rank.step(0);
      return "";
    });
    return static_cast<double>(queues.bytes);
  };
  for (const int ranks : {2, 3, 4, 5, 7, 8}) {
    INFO(ranks << " ranks");
    const double cost = shard_cost(8, static_cast<std::size_t>(ranks)).bytes;
    CHECK(bytes_of_step(8, ranks) == Approx(cost * bytes_of_step(0, ranks)).epsilon(0.02));
  }
}

TEST_CASE("a shard that is missing in a step, or one too many, is an error", "[shards]") {
  Queues queues;
  threads_tell(queues, 1, false, [&](comm::Communicator& communicator) -> std::string {
    Rank rank(communicator, {.buckets = {}, .shards = 2}, 50'000);
    rank.exchange->begin();
    const auto all_ready = [&] {
      for (std::size_t s = 0; s < rank.parameters->layout().moving_slices(); ++s)
        rank.exchange->ready(s);
    };
    CHECK_THROWS_WITH(all_ready(), Catch::Contains("a shard of this rank is missing"));
    return "";
  });
  threads_tell(queues, 1, false, [&](comm::Communicator& communicator) -> std::string {
    Rank rank(communicator, {.buckets = {}, .shards = 2}, 50'000);
    rank.exchange->begin();
    rank.exchange->keep();
    CHECK_THROWS_WITH(rank.exchange->keep(), Catch::Contains("the last shard"));
    Rank plain(communicator, {.buckets = {}}, 50'000);
    CHECK_THROWS_WITH(plain.exchange->keep(), Catch::Contains("adds no shards"));
    return "";
  });
}
