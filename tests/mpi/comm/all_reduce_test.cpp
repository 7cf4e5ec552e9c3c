#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "tests/mpi/comm/absence.hpp"
#include "tests/support/harness/mpi_world.hpp"
#include "tests/support/laws/reals.hpp"
#include "tests/support/laws/sums.hpp"

using namespace lockstep;
using namespace lockstep::device;
using lockstep::test::is_sum;
using lockstep::test::on_every_rank;
using lockstep::test::reals;
using lockstep::test::small_integers;
using lockstep::test::while_absent;
using lockstep::test::world;

namespace {

void add_up(comm::Communicator& communicator, float* data, std::size_t count,
            std::string_view name) {
  communicator.all_reduce(comm::elements(data, count), comm::Reduction::sum, name,
                          communicator.network());
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

TEST_CASE("the sum of small integers is exact on every rank, for any length", "[mpi][all_reduce]") {
  const auto communicator = test::make_communicator(30);
  for (const std::size_t count :
       {0, 1, 2, 15, 16, 17, 1023, 1024, 1025, 4099, 32768, 65537, 131071, 1000003}) {
    std::vector<float> values = small_integers(communicator->rank(), count + 1);
    const float guard = values.back();
    add_up(*communicator, values.data(), count, "test");
    communicator->network().synchronize();
    const bool untouched = values.back() == guard;
    values.pop_back();
    INFO(count << " floats");
    REQUIRE(on_every_rank(is_sum(values) && untouched));
  }
}

TEST_CASE("collectives in flight together do not mix", "[mpi][all_reduce]") {
  const auto communicator = test::make_communicator(30);
  std::mt19937 lengths(11), pauses(static_cast<unsigned>(communicator->rank()));
  std::vector<std::vector<float>> all;
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < 60; ++i) {
    all.push_back(small_integers(communicator->rank(), lengths() % (i % 5 == 0 ? 200000 : 3000)));
    add_up(*communicator, all.back().data(), all.back().size(), "test");
    events.push_back(communicator->network().record());
    for (unsigned calls = pauses() % 4; calls > 0; --calls) communicator->progress();
  }
  bool right = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    communicator->network().wait(*events[i]);
    right = right && is_sum(all[i]);
  }
  REQUIRE(on_every_rank(right));
}

TEST_CASE("a rank that waits for each sum works with one that waits for none",
          "[mpi][all_reduce]") {
  const auto communicator = test::make_communicator(30);
  std::vector<std::vector<float>> all(8, small_integers(communicator->rank(), 300001));
  for (std::vector<float>& values : all) {
    add_up(*communicator, values.data(), values.size(), "test");
    if (communicator->rank() % 2 == 0) communicator->network().synchronize();
  }
  communicator->network().synchronize();
  REQUIRE(on_every_rank(std::all_of(all.begin(), all.end(), is_sum)));
}

TEST_CASE("all ranks end with the same bits, the same in each run", "[mpi][all_reduce]") {
  const auto communicator = test::make_communicator(30);
  const auto control = test::make_control(30);
  const std::size_t count = 250007;
  std::string first;
  for (int run = 0; run < 3; ++run) {
    std::vector<float> values = reals(communicator->rank(), count);
    if (communicator->rank() == run)  // it does not matter which rank is late
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    add_up(*communicator, values.data(), count, "test");
    communicator->network().synchronize();
    if (run == 0) first = bytes_of(values);
    const std::vector<std::string> all = control->gather(bytes_of(values), "bits");
    REQUIRE(on_every_rank(std::all_of(all.begin(), all.end(),
                                      [&](const std::string& bits) { return bits == first; })));
  }
}

TEST_CASE("only a rank that never joins a sum is named, to all others, after the deadline",
          "[mpi][all_reduce]") {
  const int ranks = world().facts().world;
  if (ranks == 1) return;
  // Few floats have one owner, for which all others also wait.
  for (const std::size_t count : {100, 100000}) {
    const auto communicator = test::make_communicator(2);
    const int absent = count == 100 ? 0 : ranks - 1;
    std::vector<float> values = small_integers(communicator->rank(), count);
    const std::string said = while_absent(absent, [&] {
      add_up(*communicator, values.data(), values.size(), "bucket 7");
      communicator->network().synchronize();
    });
    const std::string expected =
        "bucket 7: rank " + std::to_string(absent) + " did not arrive within 2 s";
    INFO(said);
    REQUIRE(on_every_rank(communicator->rank() == absent || said == expected));
  }
}
