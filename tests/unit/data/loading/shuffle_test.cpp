// The orders that read large pieces: by blocks, and by nodes. sampler_test.cpp has the laws of all
// orders.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "lockstep/data/loading/sampler.hpp"

using namespace lockstep::data;

namespace {

SamplerSpec spec_of(Shuffle shuffle, std::size_t rows, std::size_t each, int world) {
  SamplerSpec spec;
  spec.shuffle = shuffle;
  spec.rows = rows;
  spec.replicas = world;
  spec.global_batch = each * static_cast<std::size_t>(world);
  spec.block = 4;
  spec.window = 3;
  return spec;
}

// A rank's rows of an epoch, in the order in which it reads them.
std::vector<std::size_t> rows_of_rank(SamplerSpec spec, int rank, std::uint64_t epoch) {
  spec.replica = rank;
  const Sampler sampler(spec);
  std::vector<std::size_t> rows;
  for (std::size_t b = 0; b < sampler.batches(); ++b) {
    const BatchPart part = sampler.part(b);
    for (std::size_t i = 0; i < part.rows; ++i)
      rows.push_back(sampler.row(epoch, part.first_position + i));
  }
  return rows;
}

std::set<std::size_t> part_of(SamplerSpec spec, int rank) {
  spec.replica = rank;
  std::set<std::size_t> rows;
  for (const RowRange& run : Sampler(spec).rows_of_node())
    for (std::size_t i = 0; i < run.rows; ++i) rows.insert(run.first + i);
  return rows;
}

std::vector<int> some_nodes(int world, int layout) {
  std::vector<int> nodes;
  for (int rank = 0; rank < world; ++rank)
    nodes.push_back(layout == 0   ? 0
                    : layout == 1 ? rank * 2 / world           // two nodes, one after the other
                    : layout == 2 ? rank % std::min(3, world)  // in turn
                    : layout == 3 ? (rank > 1 ? 1 : 0)         // of different sizes
                                  : 2 * (rank % 2) + 1);       // other ranks are on the rest
  return nodes;
}

}  // namespace

TEST_CASE("by blocks and by nodes, each row at most once, all when the last is kept", "[sampler]") {
  for (const Shuffle shuffle : {Shuffle::block, Shuffle::node})
    for (const bool keep : {true, false})
      for (const int world : {1, 2, 3, 4, 7})
        for (const int layout : {0, 1, 2, 3, 4})
          for (const std::size_t more : {0, 1, 5, 13, 22})
            for (std::size_t rows = static_cast<std::size_t>(world); rows <= 60; rows += 3) {
              SamplerSpec spec = spec_of(shuffle, rows, 1, world);
              spec.global_batch += more;
              spec.keep_last = keep;
              spec.nodes = some_nodes(world, layout);
              if (!keep && spec.global_batch > rows) continue;
              for (const std::size_t block : {1, 4, 100}) {
                spec.block = block;
                std::set<std::size_t> seen;
                std::size_t total = 0;
                for (int rank = 0; rank < world; ++rank) {
                  const auto mine = rows_of_rank(spec, rank, 5);
                  seen.insert(mine.begin(), mine.end());
                  total += mine.size();
                }
                REQUIRE(*seen.rbegin() < rows);
                REQUIRE(total == seen.size());
                REQUIRE(total == rows - (keep ? 0 : rows % spec.global_batch));
              }
            }
}

TEST_CASE("a node reads its own rows in all epochs, and the nodes' rows are all", "[sampler]") {
  for (const bool keep : {true, false})
    for (const int layout : {0, 1, 2, 3, 4}) {
      SamplerSpec spec = spec_of(Shuffle::node, 101, 3, 5);
      spec.global_batch += static_cast<std::size_t>(layout);
      spec.keep_last = keep;
      spec.nodes = some_nodes(5, layout);
      std::map<int, std::set<std::size_t>> parts, seen;
      std::size_t all = 0;
      for (int rank = 0; rank < 5; ++rank) {
        const int node = spec.nodes[static_cast<std::size_t>(rank)];
        const auto part = part_of(spec, rank);
        if (!parts.contains(node))
          all += part.size();
        else
          REQUIRE(parts[node] == part);
        parts[node] = part;
        for (std::uint64_t epoch = 0; epoch < 60; ++epoch)
          for (const std::size_t row : rows_of_rank(spec, rank, epoch)) {
            REQUIRE(part.contains(row));
            seen[node].insert(row);
          }
      }
      std::set<std::size_t> together;
      for (const auto& [node, part] : parts) together.insert(part.begin(), part.end());
      REQUIRE(all == 101);
      REQUIRE(together.size() == 101);
      REQUIRE(seen == parts);  // what is dropped changes
    }
}

TEST_CASE("by blocks, a rank reads the rows of few blocks at a time", "[sampler]") {
  SamplerSpec spec = spec_of(Shuffle::block, 4099, 8, 3);
  spec.block = 16;
  spec.window = 4;
  spec.keep_last = true;
  for (int rank = 0; rank < 3; ++rank) {
    const auto rows = rows_of_rank(spec, rank, 1);
    std::set<std::size_t> before;
    for (std::size_t window = 0; window < rows.size(); window += 64) {
      std::set<std::size_t> blocks;
      for (std::size_t i = window; i < std::min(window + 64, rows.size()); ++i)
        blocks.insert(rows[i] / 16);
      REQUIRE(blocks.size() <= 4 + 1 + 1);  // a part may begin in a block; one is shorter
    }
    REQUIRE_FALSE(std::is_sorted(rows.begin(), rows.begin() + 64));
  }
  CHECK(rows_of_rank(spec, 0, 1) != rows_of_rank(spec, 0, 2));
  SamplerSpec other = spec;
  other.seed = 2;
  CHECK(rows_of_rank(spec, 0, 1) != rows_of_rank(other, 0, 1));
}

TEST_CASE("by blocks and by nodes, every row gets to every place", "[sampler]") {
  // The places of row 5, and of one in the shorter last block, in the order of 400 epochs.
  for (const Shuffle shuffle : {Shuffle::block, Shuffle::node})
    for (const std::size_t row : {5, 37}) {
      SamplerSpec spec = spec_of(shuffle, 38, 38, 1);
      std::vector<double> counts(38, 0);
      constexpr std::size_t epochs = 38 * 200;
      for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
        const auto rows = rows_of_rank(spec, 0, epoch);
        counts[static_cast<std::size_t>(std::find(rows.begin(), rows.end(), row) - rows.begin())] +=
            1;
      }
      double chi_square = 0;
      for (const double count : counts) chi_square += (count - 200) * (count - 200) / 200;
      // Blocks of 4 and one of 2 do not get to all places equally often, but to all windows.
      if (shuffle == Shuffle::node) CHECK(chi_square < 37 + 5 * std::sqrt(2 * 37.0));
      CHECK(*std::min_element(counts.begin(), counts.begin() + 36) > 100);
      CHECK(*std::max_element(counts.begin(), counts.end()) < 400);
    }
}
