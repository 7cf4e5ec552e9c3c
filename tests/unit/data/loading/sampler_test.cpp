#include "lockstep/data/loading/sampler.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "lockstep/base/error.hpp"

using namespace lockstep;
using namespace lockstep::data;
using Catch::Matchers::Contains;

namespace {

SamplerSpec whole(std::size_t rows, std::uint64_t seed = 1) {
  SamplerSpec spec;
  spec.rows = spec.global_batch = rows;
  spec.seed = seed;
  return spec;
}

std::vector<std::size_t> order(const Sampler& sampler, std::uint64_t epoch) {
  std::vector<std::size_t> rows(sampler.spec().rows);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = sampler.row(epoch, i);
  return rows;
}

bool each_once(const std::vector<std::size_t>& rows, std::size_t count) {
  std::vector<bool> seen(count, false);
  for (const std::size_t row : rows) {
    if (row >= count || seen[row]) return false;
    seen[row] = true;
  }
  return rows.size() == count;
}

// The rows of one global batch, rank after rank.
std::vector<std::size_t> global_batch(SamplerSpec spec, std::uint64_t epoch, std::size_t index) {
  std::vector<std::size_t> rows;
  for (spec.replica = 0; spec.replica < spec.replicas; ++spec.replica) {
    const Sampler sampler(spec);
    const BatchPart part = sampler.part(index);
    for (std::size_t i = 0; i < part.rows; ++i) {
      rows.push_back(sampler.row(epoch, part.first_position + i));
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("the order of an epoch is a permutation, for every size", "[sampler]") {
  for (std::size_t rows = 1; rows <= 2000; ++rows) {
    REQUIRE(each_once(order(Sampler(whole(rows)), rows % 7), rows));
  }
  for (const std::size_t rows : {50'000ul, 65'536ul, 65'537ul, 1'281'167ul}) {
    REQUIRE(each_once(order(Sampler(whole(rows, 42)), 3), rows));
  }
}

TEST_CASE("rows beyond 32 bits are permuted too", "[sampler]") {
  const Sampler sampler(whole(3ull << 32));
  std::set<std::size_t> seen;
  std::size_t large = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    const std::size_t row = sampler.row(0, i);
    REQUIRE(row < (3ull << 32));
    seen.insert(row);
    large += row > (2ull << 32) ? 1 : 0;
  }
  CHECK(seen.size() == 1000);
  CHECK(large > 250);
  CHECK(large < 420);
}

TEST_CASE("every row exactly once per epoch, for any world, batch and uneven end", "[sampler]") {
  for (const bool keep : {true, false}) {
    for (const int world : {1, 2, 3, 4, 7}) {
      for (auto global = static_cast<std::size_t>(world); global <= 36; ++global) {
        for (std::size_t rows = static_cast<std::size_t>(world); rows <= 45; ++rows) {
          SamplerSpec spec = whole(rows);
          spec.replicas = world;
          spec.global_batch = global;
          spec.keep_last = keep;
          if (!keep && spec.global_batch > rows) continue;
          const Sampler sampler(spec);
          std::set<std::size_t> seen;
          std::size_t total = 0;
          for (std::size_t b = 0; b < sampler.batches(); ++b) {
            const auto batch = global_batch(spec, 2, b);
            REQUIRE(batch.size() == sampler.part(b).global_rows);
            seen.insert(batch.begin(), batch.end());
            total += batch.size();
          }
          REQUIRE(total == seen.size());
          REQUIRE(total + sampler.dropped() == rows);
          REQUIRE(sampler.dropped() == (keep ? 0 : rows % spec.global_batch));
        }
      }
    }
  }
}

TEST_CASE("N ranks see the global batches of one rank, row for row", "[sampler]") {
  SamplerSpec spec = whole(103);
  spec.global_batch = 12;
  spec.keep_last = true;
  const std::size_t batches = Sampler(spec).batches();
  REQUIRE(batches == 9);
  for (std::size_t b = 0; b < batches; ++b) {
    spec.replicas = 1;
    const auto alone = global_batch(spec, 1, b);
    for (const int world : {2, 3, 4, 5, 6, 7, 12}) {
      spec.replicas = world;
      REQUIRE(global_batch(spec, 1, b) == alone);
    }
  }
}

TEST_CASE("every batch is shared as evenly as can be, lower ranks first", "[sampler]") {
  SamplerSpec spec = whole(14);
  spec.global_batch = 8;
  spec.replicas = 4;
  spec.keep_last = true;
  std::vector<std::size_t> shares;
  for (spec.replica = 0; spec.replica < 4; ++spec.replica)
    shares.push_back(Sampler(spec).part(1).rows);
  CHECK(shares == std::vector<std::size_t>{2, 2, 1, 1});
  spec.rows = 9;
  spec.replica = 3;
  CHECK(Sampler(spec).part(1).rows == 0);
  CHECK(Sampler(spec).part(1).global_rows == 1);
  CHECK(Sampler(spec).replica_batch() == 2);
  CHECK_THROWS_AS(Sampler(spec).part(2), Error);
  spec.replicas = 3;
  shares.clear();
  for (spec.replica = 0; spec.replica < 3; ++spec.replica)
    shares.push_back(Sampler(spec).part(0).rows);
  CHECK(shares == std::vector<std::size_t>{3, 3, 2});
  spec.replica = 2;
  CHECK(Sampler(spec).replica_batch() == 3);
}

TEST_CASE("without shuffling the order is the data set's", "[sampler]") {
  SamplerSpec spec = whole(100);
  spec.shuffle = Shuffle::none;
  for (std::size_t i = 0; i < 100; ++i) REQUIRE(Sampler(spec).row(5, i) == i);
}

TEST_CASE("the order depends on seed and epoch and on nothing else", "[sampler]") {
  const auto a = order(Sampler(whole(1000, 1)), 0);
  CHECK(order(Sampler(whole(1000, 1)), 0) == a);
  CHECK(order(Sampler(whole(1000, 1)), 1) != a);
  CHECK(order(Sampler(whole(1000, 2)), 0) != a);
  // Part of the meaning of a seed: a resume relies on it.
  const auto small = order(Sampler(whole(8, 1)), 0);
  CHECK(small == std::vector<std::size_t>{3, 7, 1, 2, 4, 5, 0, 6});
}

TEST_CASE("a shuffled order shows no trace of the data set's", "[sampler]") {
  for (const std::size_t rows : {1000ul, 4096ul, 50'000ul}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const auto rows_in_order = order(Sampler(whole(rows, seed)), seed);
      const auto n = static_cast<double>(rows);
      double jump = 0, with_position = 0, with_next = 0;
      std::size_t neighbours = 0;
      for (std::size_t i = 0; i + 1 < rows; ++i) {
        const double here = static_cast<double>(rows_in_order[i]) / n - 0.5;
        const double next = static_cast<double>(rows_in_order[i + 1]) / n - 0.5;
        jump += std::abs(next - here) / n;
        with_position += 12 * here * (static_cast<double>(i) / n - 0.5) / n;
        with_next += 12 * here * next / n;
        neighbours += std::abs(next - here) * n < 1.5 ? 1 : 0;
      }
      const double sigma = 1 / std::sqrt(n);
      CHECK(std::abs(jump - 1.0 / 3) < 4 * 0.25 * sigma);  // of a uniform permutation
      CHECK(std::abs(with_position) < 4 * sigma);          // correlations: mean 0, deviation sigma
      CHECK(std::abs(with_next) < 4 * sigma);
      CHECK(neighbours < 2 + 4 * std::sqrt(2.0) + 4);  // Poisson with mean 2
    }
  }
}

TEST_CASE("over seeds and epochs each position holds each row equally often", "[sampler]") {
  for (const std::size_t rows : {2ul, 3ul, 5ul, 8ul, 10ul, 37ul, 64ul}) {
    const std::size_t draws = 400 * rows;
    for (const std::size_t position : {std::size_t{0}, rows / 2, rows - 1}) {
      std::vector<double> by_seed(rows, 0), by_epoch(rows, 0);
      for (std::size_t i = 0; i < draws; ++i) {
        by_seed[Sampler(whole(rows, i)).row(0, position)] += 1;
        by_epoch[Sampler(whole(rows, 1)).row(i, position)] += 1;
      }
      for (const auto& counts : {by_seed, by_epoch}) {
        double chi_square = 0;
        for (const double count : counts) chi_square += (count - 400) * (count - 400) / 400;
        const double freedom = static_cast<double>(rows - 1);
        CHECK(chi_square < freedom + 5 * std::sqrt(2 * freedom));
      }
    }
  }
}

TEST_CASE("what two positions hold is independent of each other", "[sampler]") {
  // All ordered pairs of different rows, equally often.
  constexpr std::size_t row_count = 7, pair_count = row_count * (row_count - 1), draws_each = 200;
  std::vector<double> counts(row_count * row_count, 0);
  for (std::size_t i = 0; i < pair_count * draws_each; ++i) {
    const Sampler sampler(whole(row_count, i));
    counts[sampler.row(0, 2) * row_count + sampler.row(0, 3)] += 1;
  }
  double chi_square = 0;
  for (std::size_t a = 0; a < row_count; ++a) {
    for (std::size_t b = 0; b < row_count; ++b) {
      const double expected = a == b ? 0 : draws_each, count = counts[a * row_count + b];
      if (a == b) REQUIRE(count == 0);
      chi_square += (count - expected) * (count - expected) / draws_each;
    }
  }
  CHECK(chi_square < (pair_count - 1) + 5 * std::sqrt(2.0 * (pair_count - 1)));
}

TEST_CASE("batches that ranks cannot share are errors that give the numbers", "[sampler]") {
  SamplerSpec spec = whole(100);
  spec.replicas = 3;
  spec.global_batch = 2;
  CHECK_THROWS_AS(Sampler(spec), InputError);
  CHECK_THROWS_WITH(Sampler(spec), Contains("2 rows") && Contains("3 ranks"));
  spec.global_batch = 300;
  CHECK_THROWS_WITH(Sampler(spec), Contains("300") && Contains("100") && Contains("no step"));
  spec.keep_last = true;
  CHECK(Sampler(spec).batches() == 1);
  spec.replicas = 101;
  spec.global_batch = 101;
  CHECK_THROWS_WITH(Sampler(spec), Contains("101 ranks") && Contains("100 rows"));
  spec.shuffle = Shuffle::none;  // an evaluation counts every row, even if a rank has none
  CHECK(each_once(global_batch(spec, 0, 0), 100));
  spec = whole(0);
  CHECK_THROWS_WITH(Sampler(spec), Contains("no rows"));
  spec.rows = 5;
  spec.global_batch = 0;
  CHECK_THROWS_AS(Sampler(spec), InputError);
}

TEST_CASE("a process that takes the rows of several replicas reads what they would read",
          "[sampler][shards]") {
  for (const Shuffle shuffle : {Shuffle::none, Shuffle::global, Shuffle::block})
    for (const bool keep_last : {false, true}) {
      SamplerSpec spec{.rows = 103, .global_batch = 24, .replicas = 8};
      spec.shuffle = shuffle;
      spec.keep_last = keep_last;
      spec.block = 3;
      spec.window = 2;
      const std::size_t batches = Sampler(spec).batches();
      for (std::size_t index = 0; index < batches; ++index) {
        const std::vector<std::size_t> expected = global_batch(spec, 2, index);
        std::vector<std::size_t> rows, counts;
        for (const auto& [first, taken] : {std::pair{0, 3}, {3, 4}, {7, 1}}) {
          SamplerSpec own = spec;
          own.replica = first;
          own.taken = taken;
          const Sampler sampler(own);
          const BatchPart part = sampler.part(index);
          CHECK(part.rows <= sampler.replica_batch());
          for (std::size_t i = 0; i < part.rows; ++i)
            rows.push_back(sampler.row(2, part.first_position + i));
          const std::vector<std::size_t> of_each = sampler.taken_rows(index);
          CHECK(of_each.size() == static_cast<std::size_t>(taken));
          counts.insert(counts.end(), of_each.begin(), of_each.end());
        }
        CHECK(rows == expected);
        for (std::size_t replica = 0; replica < 8; ++replica) {
          SamplerSpec one = spec;
          one.replica = static_cast<int>(replica);
          CHECK(counts[replica] == Sampler(one).part(index).rows);
        }
      }
    }
}

TEST_CASE(
    "whole blocks: the last batch is cut as a full one, so each block is the same for any "
    "number of replicas",
    "[sampler][shards]") {
  for (const int replicas : {1, 2, 3, 7}) {
    std::vector<std::size_t> begins;
    for (int replica = 0; replica < replicas; ++replica) {
      SamplerSpec spec{.rows = 45, .global_batch = 10 * static_cast<std::size_t>(replicas)};
      spec.replica = replica;
      spec.replicas = replicas;
      spec.shuffle = Shuffle::none;
      spec.keep_last = spec.whole_blocks = true;
      const Sampler sampler(spec);
      for (std::size_t index = 0; index < sampler.batches(); ++index)
        if (const BatchPart part = sampler.part(index); part.rows > 0) {
          begins.push_back(part.first_position);
          CHECK(part.rows == std::min<std::size_t>(10, 45 - part.first_position));
        }
    }
    std::sort(begins.begin(), begins.end());
    CHECK(begins == std::vector<std::size_t>{0, 10, 20, 30, 40});
  }
}

namespace {

/// 7 classes of 1000, 100, 0, 33, 1, 10 and 0 rows, mixed up.
std::vector<std::int32_t> uneven_labels() {
  std::vector<std::int32_t> labels;
  const std::size_t rows[] = {1000, 100, 0, 33, 1, 10, 0};
  for (std::int32_t c = 0; c < 7; ++c) labels.insert(labels.end(), rows[c], c);
  std::vector<std::int32_t> mixed;
  for (std::size_t i = 0; i < labels.size(); ++i) mixed.push_back(labels[i * 7 % labels.size()]);
  return mixed;
}

SamplerSpec balanced(float evenness) {
  const std::vector<std::int32_t> labels = uneven_labels();
  SamplerSpec spec = whole(labels.size());
  spec.balance = balance_classes(labels, 7, evenness);
  return spec;
}

}  // namespace

TEST_CASE("a balanced epoch has its classes as often as asked, and their rows equally often",
          "[sampler]") {
  const std::vector<std::int32_t> labels = uneven_labels();
  const double rows[] = {1000, 100, 0, 33, 1, 10, 0};
  for (const float evenness : {0.25f, 0.5f, 1.f}) {
    const Sampler sampler(balanced(evenness));
    double shares = 0;
    for (const double n : rows) shares += n > 0 ? std::pow(n, 1 - evenness) : 0;
    for (const std::uint64_t epoch : {0, 3}) {
      std::vector<double> of_class(7);
      std::vector<std::size_t> of_row(labels.size());
      for (const std::size_t row : order(sampler, epoch)) {
        of_class[static_cast<std::size_t>(labels[row])] += 1;
        of_row[row] += 1;
      }
      for (std::size_t c = 0; c < 7; ++c) {
        const double want =
            rows[c] > 0 ? std::pow(rows[c], 1 - evenness) / shares * labels.size() : 0;
        CHECK(std::abs(of_class[c] - want) <= 1);
        const auto each = static_cast<std::size_t>(rows[c] > 0 ? of_class[c] / rows[c] : 0);
        for (std::size_t row = 0; row < labels.size(); ++row)
          if (labels[row] == static_cast<std::int32_t>(c))
            REQUIRE((of_row[row] == each || of_row[row] == each + 1));
      }
    }
  }
}

TEST_CASE("a balanced order is the same on any ranks, and another in each epoch and seed",
          "[sampler]") {
  SamplerSpec spec = balanced(1);
  const std::vector<std::size_t> alone = order(Sampler(spec), 2);
  CHECK(alone != order(Sampler(spec), 3));
  SamplerSpec other = spec;
  other.seed = 9;
  CHECK(alone != order(Sampler(other), 2));
  spec.global_batch = 40;
  for (spec.replicas = 1; spec.replicas <= 5; ++spec.replicas)
    for (std::size_t b = 0; b < 3; ++b) {
      const std::vector<std::size_t> rows = global_batch(spec, 2, b);
      CHECK(std::equal(rows.begin(), rows.end(),
                       alone.begin() + static_cast<std::ptrdiff_t>(b) * 40));
    }
}

TEST_CASE("what is drawn for a row is another thing each time that it comes", "[sampler]") {
  const Sampler sampler(balanced(1));
  std::set<std::pair<std::size_t, std::uint64_t>> seen;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
    for (std::size_t i = 0; i < sampler.spec().rows; ++i) {
      const RowVisit at = sampler.visit(epoch, i);
      REQUIRE(seen.emplace(at.row, at.visit).second);
    }
  CHECK(Sampler(whole(20)).visit(7, 3).visit == 7);
}

TEST_CASE("the rows of a large class that an epoch leaves out are others in each", "[sampler]") {
  const Sampler sampler(balanced(1));
  std::set<std::size_t> seen;
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch)
    for (const std::size_t row : order(sampler, epoch)) seen.insert(row);
  CHECK(seen.size() == sampler.spec().rows);
}
