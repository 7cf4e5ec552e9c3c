#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>

#include "lockstep/comm/control.hpp"
#include "lockstep/train/evaluator.hpp"
#include "tests/unit/ports/tcp/tcp_ranks.hpp"

using namespace lockstep;
using train::Confused;

namespace {

constexpr std::uint32_t classes = 100'000;

/// The counts of one rank: of each row one, in the order of rows.
std::vector<Confused> some_counts(int rank, std::size_t row_count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::vector<Confused> counts;
  for (std::size_t row = 0; row < row_count; ++row) {
    const auto label = static_cast<std::uint32_t>(random() % classes);
    counts.push_back({label, random() % 3 == 0 ? label : label / 2, 1});
  }
  return counts;
}

std::vector<Confused> sum_of(int world, std::size_t row_count) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> sums;
  for (int rank = 0; rank < world; ++rank)
    for (const Confused& one : some_counts(rank, row_count + static_cast<std::size_t>(rank)))
      sums[{one.label, one.predicted}] += one.count;
  std::vector<Confused> counts;
  for (const auto& [pair, count] : sums) counts.push_back({pair.first, pair.second, count});
  return counts;
}

/// Rank 0 of many equal ranks; it notes the largest message.
class Crowd final : public comm::Control {
 public:
  int rank() const override { return 0; }
  int world() const override { return 64; }
  std::size_t largest = 0;

 private:
  std::string meet(const std::string& mine, std::string_view, const Combine& combine) override {
    const std::string result = combine(Parts(64, mine));
    largest = std::max({largest, mine.size(), result.size()});
    return result;
  }
};

}  // namespace

TEST_CASE("rank 0 gets the sums of all ranks' counts, in one message or in many", "[evaluator]") {
  constexpr int world = 4;
  constexpr std::size_t row_count = 5000;
  const std::vector<Confused> want = sum_of(world, row_count);
  for (const std::size_t at_once : {std::size_t{1000}, std::size_t{1} << 21}) {
    std::vector<Confused> got;
    std::size_t others = 0;
    const auto told = test::ranks_tell(world, [&](comm::Control& control) {
      const int rank = control.rank();
      auto all = train::gather_confusion(
          control, some_counts(rank, row_count + static_cast<std::size_t>(rank)), at_once);
      if (rank == 0) got = all;
      return std::to_string(rank == 0 ? 0 : all.size());
    });
    for (const std::string& one : told) others += one != "0" ? 1 : 0;
    CHECK(others == 0);
    CHECK(got == want);
  }
}

TEST_CASE("no message of an evaluation grows with its classes or rows", "[evaluator][large]") {
  Crowd control;
  constexpr std::size_t row_count = 100'000, at_once = 6400;
  const auto all = train::gather_confusion(control, some_counts(0, row_count), at_once);
  std::uint64_t counted = 0;
  for (const Confused& one : all) counted += one.count;
  CHECK(counted == 64 * row_count);
  CHECK(control.largest <= at_once / 64 * sizeof(Confused) + sizeof(std::uint64_t));
}
