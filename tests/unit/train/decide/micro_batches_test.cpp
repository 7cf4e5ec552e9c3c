#include <algorithm>

#include <catch2/catch.hpp>

#include "lockstep/train/decide/micro_batches.hpp"

using lockstep::train::MicroBatch;
using lockstep::train::plan_micro_batches;
using lockstep::train::plan_own;

TEST_CASE("every row of every global batch lies in exactly one micro-batch", "[micro-batches]") {
  for (int world = 1; world <= 5; ++world)
    for (std::size_t full = 1; full <= 4; ++full)
      for (std::size_t global = 1; global <= 30; ++global) {
        std::size_t rows = 0;
        std::vector<std::size_t> sums;
        std::vector<MicroBatch> first_rank = plan_micro_batches(global, world, 0, full);
        sums.resize(first_rank.size());
        for (int rank = 0; rank < world; ++rank) {
          const auto batches = plan_micro_batches(global, world, rank, full);
          REQUIRE(batches.size() == first_rank.size());
          std::size_t next = 0;
          for (std::size_t i = 0; i < batches.size(); ++i) {
            REQUIRE(batches[i].first == next);
            REQUIRE(batches[i].global_rows == first_rank[i].global_rows);
            next += batches[i].rows;
            sums[i] += batches[i].rows;
          }
          rows += next;
          const bool all_or_none = next == 0 || std::all_of(batches.begin(), batches.end(),
                                                            [](auto& b) { return b.rows > 0; });
          REQUIRE(all_or_none);
        }
        REQUIRE(rows == global);
        for (std::size_t i = 0; i < sums.size(); ++i) REQUIRE(sums[i] == first_rank[i].global_rows);
      }
}

TEST_CASE("a full batch gives equal micro-batches", "[micro-batches]") {
  const auto batches = plan_micro_batches(96, 2, 1, 16);
  REQUIRE(batches.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(batches[i].first == 16 * i);
    CHECK(batches[i].rows == 16);
    CHECK(batches[i].global_rows == 32);
  }
}

TEST_CASE("a batch is cut into the same shards, whatever replicas have them", "[shards]") {
  for (const std::size_t shards : {1, 2, 5, 8, 13})
    for (std::size_t global = 1; global <= 30; ++global) {
      std::vector<std::size_t> all;
      for (const MicroBatch& one : plan_own(global, shards, 1, {.index = 0, .count = 1}))
        all.push_back(one.rows);
      REQUIRE(all.size() == shards);
      for (int count = 1; count <= static_cast<int>(shards); ++count) {
        std::vector<std::size_t> rows;
        for (int index = 0; index < count; ++index) {
          std::size_t next = 0;
          for (const MicroBatch& one :
               plan_own(global, shards, 1, {.index = index, .count = count})) {
            REQUIRE(one.first == next);
            REQUIRE(one.global_rows == global);
            next += one.rows;
            rows.push_back(one.rows);
          }
        }
        REQUIRE(rows == all);
      }
    }
  // Without shards, as before.
  CHECK(plan_own(96, 0, 16, {.index = 1, .count = 2}).size() == 3);
}
