// Workers that know only a folder share pieces: each has one holder, and none is lost.
#include "lockstep/base/files/work_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// The claim of a process on another machine.
void claim_from_elsewhere(const std::filesystem::path& file) {
  write_file(file, "host elsewhere\npid 1\nbegan 7\nspace other/pid:[1]\n");
}

/// Tries once every 10 ms; the seconds until it holds the piece, or nothing within `patience_s`.
std::optional<double> seconds_to_take(WorkFolder& claims, std::size_t piece, double patience_s) {
  const double start = now_s();
  while (now_s() < start + patience_s) {
    if (claims.take_any({piece})) return now_s() - start;
    sleep_s(0.01);
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("of workers that claim at once, each piece gets one", "[work_folder]") {
  const Folder folder;
  std::vector<std::size_t> pieces(40);
  std::iota(pieces.begin(), pieces.end(), std::size_t{0});
  std::vector<std::unique_ptr<WorkFolder>> workers(6);
  for (auto& worker : workers) worker = std::make_unique<WorkFolder>(WorkFolderSpec{folder.path});
  std::vector<std::vector<std::size_t>> taken(workers.size());
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < workers.size(); ++w)
    threads.emplace_back([&, w] {
      while (const auto piece = workers[w]->take_any(pieces)) taken[w].push_back(*piece);
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<std::size_t> all;
  for (const auto& some : taken) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  CHECK(all == pieces);
  workers.clear();
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("a claim without a heartbeat is taken over by one worker, once its time is over",
          "[work_folder][waits]") {
  const Folder folder;
  claim_from_elsewhere(folder.path / "5.0");
  const WorkFolderSpec spec{.claims = folder.path, .beat_s = 0.02, .stale_s = 0.3};
  WorkFolder one(spec), other(spec);
  std::optional<std::size_t> first, second;
  const double start = now_s();
  while (!first && !second && now_s() < start + 10) {
    first = one.take_any({5});
    second = other.take_any({5});
    sleep_s(0.01);
  }
  CHECK(now_s() - start >= 0.3);
  CHECK((first.has_value() != second.has_value()));
  CHECK(names_in(folder.path) == std::vector<std::string>{"5.0", "5.1"});
  CHECK_FALSE(seconds_to_take(first ? other : one, 5, 1));  // the new holder's heart beats
}

TEST_CASE("a heartbeat is any change of the claim's time, however wrong that is",
          "[work_folder][waits]") {
  const Folder folder;
  const std::filesystem::path file = folder.path / "0.0";
  claim_from_elsewhere(file);
  std::atomic<bool> over = false;
  std::thread elsewhere([&] {
    for (time_t wrong_s = 4'000'000'000; !over; wrong_s -= 1000) {  // in 2096, and running back
      const timespec times[] = {{wrong_s, 0}, {wrong_s, 0}};
      ::utimensat(AT_FDCWD, file.c_str(), times, 0);
      sleep_s(0.02);
    }
  });
  WorkFolder claims({.claims = folder.path, .beat_s = 0.02, .stale_s = 0.5});
  CHECK_FALSE(seconds_to_take(claims, 0, 1.5));
  over = true;
  elsewhere.join();
  CHECK(seconds_to_take(claims, 0, 10));  // now its time in the future stays as it is
}

TEST_CASE("the claim of a process that has ended on this machine is taken over at once",
          "[work_folder]") {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    WorkFolder claims({folder.path});
    ::_exit(claims.take_any({3}) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(names_in(folder.path) == std::vector<std::string>{"3.0"});
  WorkFolder claims({folder.path});
  CHECK(claims.take_any({3}) == 3);
  CHECK(claims.workers() == 1);
}

TEST_CASE("what is no claim's file keeps no worker, and its piece is taken over",
          "[work_folder][waits]") {
  const Folder folder;
  REQUIRE(::mkfifo((folder.path / "0.0").c_str(), 0600) == 0);
  std::filesystem::create_directory(folder.path / "1.0");
  WorkFolder claims({.claims = folder.path, .beat_s = 0.02, .stale_s = 0.2});
  CHECK(claims.workers() == 0);
  CHECK(seconds_to_take(claims, 0, 10));
  CHECK(seconds_to_take(claims, 1, 10));
}

TEST_CASE("a worker that was stopped and overtaken gives up its own claim only",
          "[work_folder][waits]") {
  const Folder folder;
  WorkFolder stopped({.claims = folder.path, .beat_s = 1000});
  REQUIRE(stopped.take_any({0}));
  WorkFolder next({.claims = folder.path, .beat_s = 0.02, .stale_s = 0.2});
  REQUIRE(seconds_to_take(next, 0, 10));
  stopped.release(0);
  WorkFolder third({.claims = folder.path, .beat_s = 0.02, .stale_s = 0.5});
  CHECK_FALSE(seconds_to_take(third, 0, 1));
  next.release(0);
  CHECK(third.take_any({0}));
}

TEST_CASE("a folder that cannot be made is named", "[work_folder]") {
  const Folder folder;
  write_file(folder.path / "file", "");
  CHECK_THROWS_WITH(WorkFolder({folder.path / "file" / "claims"}), Catch::Contains("file/claims"));
}

TEST_CASE("work is done once by processes that share it, and all wait until it is done",
          "[work_folder]") {
  const Folder folder;
  constexpr std::size_t pieces = 40;
  std::vector<std::atomic<int>> done(pieces);
  const auto left = [&] {
    std::vector<std::size_t> numbers;
    for (std::size_t piece = 0; piece < pieces; ++piece)
      if (done[piece] == 0) numbers.push_back(piece);
    return numbers;
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < 4; ++i)
    workers.emplace_back([&] {
      WorkFolder({folder.path}).do_all(left, [&](std::size_t piece) { ++done[piece]; });
      CHECK(left().empty());
    });
  for (std::thread& worker : workers) worker.join();
  CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
}

TEST_CASE("a piece is held by one process, and not taken from one that lives, here or elsewhere",
          "[work_folder][waits]") {
  const Folder folder;
  const WorkFolderSpec spec{.claims = folder.path, .beat_s = 0.02, .stale_s = 0.3};
  WorkFolder here(spec);
  REQUIRE(here.hold(0));
  CHECK_FALSE(WorkFolder({folder.path}).hold(0));  // at once
  here.release(0);
  CHECK(WorkFolder(spec).hold(0));

  claim_from_elsewhere(folder.path / "1.0");
  std::atomic<bool> over = false;
  std::thread elsewhere([&] {
    while (!over) {
      ::utimensat(AT_FDCWD, (folder.path / "1.0").c_str(), nullptr, 0);
      sleep_s(0.02);
    }
  });
  CHECK_FALSE(WorkFolder({folder.path}).hold(1));
  over = true;
  elsewhere.join();
  CHECK(here.hold(1));  // no more sign of life
  CHECK_FALSE(here.is_overtaken(1));
  write_file(folder.path / "1.2", "");
  CHECK(here.is_overtaken(1));
}

TEST_CASE("who waits for a piece whose folder is removed does not get it", "[work_folder]") {
  const Folder folder;
  WorkFolder late({folder.path / "claims"});
  std::filesystem::remove_all(folder.path / "claims");
  CHECK_FALSE(late.hold(0));
}

TEST_CASE("holders live once their heartbeats were seen, and no longer than those come",
          "[work_folder][waits]") {
  const Folder folder;
  const WorkFolderSpec spec{.claims = folder.path, .beat_s = 0.05, .stale_s = 2};
  auto holder = std::make_unique<WorkFolder>(spec);
  WorkFolder other(spec);
  REQUIRE(holder->take_any({7}));
  REQUIRE_FALSE(other.take_any({7}));
  CHECK_FALSE(other.holders_live());  // it is there, but may be dead
  const double limit_s = now_s() + 30;
  while (!other.holders_live() && now_s() < limit_s) {
    sleep_s(0.01);
    REQUIRE_FALSE(other.take_any({7}));
  }
  CHECK(other.holders_live());
  claim_from_elsewhere(folder.path / "8.0");
  REQUIRE_FALSE(other.take_any({7, 8}));
  CHECK_FALSE(other.holders_live());  // one of the two is silent
  REQUIRE_FALSE(other.take_any({7}));
  CHECK(other.holders_live());
}
