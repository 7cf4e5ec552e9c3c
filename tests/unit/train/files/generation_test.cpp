#include <catch2/catch.hpp>

#include <fstream>
#include <thread>
#include <vector>

#include "lockstep/base/error.hpp"
#include "tests/support/folder_fixture.hpp"
#include "train/files/generation.hpp"

using namespace lockstep;
using lockstep::test::Folder;
using namespace lockstep::train;
using Catch::Matchers::Contains;

TEST_CASE("starts that begin at once take different numbers, and all but one are old",
          "[generation]") {
  const Folder folder;
  const RunDirectory run(folder.path);
  std::vector<std::optional<Generation>> taken(8);
  std::vector<std::thread> threads;
  for (auto& one : taken)
    threads.emplace_back([&] { one.emplace(run, StartNotice{0, 5, "n1", ""}); });
  for (auto& thread : threads) thread.join();
  std::vector<bool> seen(9);
  std::size_t newest = 0;
  for (const auto& one : taken) {
    REQUIRE((one->number() >= 1 && one->number() <= 8));
    CHECK_FALSE(seen[one->number()]);
    seen[one->number()] = true;
    try {
      one->require_newest();
      ++newest;
    } catch (const Error&) {
    }
  }
  CHECK(newest == 1);
}

TEST_CASE("an older start learns which start replaced it", "[generation]") {
  const Folder folder;
  const RunDirectory run(folder.path);
  CHECK_FALSE(newest_start(run));
  const Generation old(run, {0, 5, "n1", "12"});
  old.require_newest();
  const Generation newer(run, {0, 9, "n2", "12"});
  CHECK(newer.number() == 2);
  CHECK_THROWS_WITH(old.require_newest(), Contains("started again on n2 by job 12") &&
                                              Contains("generation 1") &&
                                              Contains("writes nothing more"));
  newer.require_newest();
  CHECK(newest_start(run)->step == 9U);
}

TEST_CASE("starts without progress are those of one job, in a row, from one step", "[generation]") {
  const Folder folder;
  const RunDirectory run(folder.path);
  CHECK(starts_without_progress(run, "12", 0) == 0);
  for (const StartNotice& start :
       {StartNotice{0, 5, "n", "11"}, StartNotice{0, 5, "n", "12"}, StartNotice{0, 5, "n", "12"},
        StartNotice{0, std::nullopt, "n", "12"}})
    Generation(run, start);
  CHECK(starts_without_progress(run, "12", 5) == 2);
  CHECK(starts_without_progress(run, "12", 6) == 0);
  CHECK(starts_without_progress(run, "13", 5) == 0);
}

TEST_CASE("a start takes over from its own job's previous one, and from no other", "[generation]") {
  const Folder folder;
  const RunDirectory run(folder.path);
  const StartNotice again{0, 0, "n2", "12"};
  CHECK_FALSE(take_over_from_previous_start(run, again, 1));  // there was none
  const Generation previous(run, {0, 5, "n1", "12"});
  CHECK_FALSE(take_over_from_previous_start(run, again, 1));  // it has ended
  std::optional<RunLock> lock(run);
  CHECK_FALSE(take_over_from_previous_start(run, {0, 0, "n2", "13"}, 1));
  CHECK_FALSE(take_over_from_previous_start(run, {0, 0, "n2", ""}, 1));
  previous.require_newest();
  std::thread obedient([&] {
    for (int i = 0; i < 6000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      try {
        previous.require_newest();
      } catch (const Error&) {
        return lock.reset();
      }
    }
  });
  CHECK(take_over_from_previous_start(run, again, 10));
  obedient.join();
  CHECK_FALSE(RunLock::look(run).held_since_ms);
  lock.emplace(run);
  CHECK_THROWS_AS(RunLock(run), InputError);
  const RunLock regardless(run, true);
}
