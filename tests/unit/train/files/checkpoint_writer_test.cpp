#include "train/files/checkpoint_writer.hpp"

#include <algorithm>
#include <future>
#include <thread>

#include <catch2/catch.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "tests/unit/model/checkpoint_fixture.hpp"
#include "train/ending/stop_policy.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::train;
using lockstep::test::FakeParameters;
using lockstep::test::Folder;
using lockstep::test::small_model;
using lockstep::test::some_header;

namespace {

namespace fs = std::filesystem;

struct Saves {
  explicit Saves(std::size_t copies, std::size_t keep = 2)
      : directory(folder.path, keep),
        writer(directory, {.copies = copies, .before = [this] { before(); }}) {}

  void save(std::uint64_t step, KeptAs as = {}) {
    CheckpointHeader header = some_header();
    header.progress.step = step;
    header.progress.best_score = as.best ? 0.001 * static_cast<double>(step) : best_top1;
    best_top1 = header.progress.best_score;
    writer.begin(as, header, parameters);
    writer.end(now_s());
  }
  void before() {
    if (held) go_on.wait();
  }
  /// From now on the file system does not answer, until release().
  void hold() {
    gate = {};
    go_on = gate.get_future().share();
    held = true;
  }
  void release() {
    held = false;
    gate.set_value();
  }
  std::vector<std::uint64_t> written() {
    std::vector<std::uint64_t> steps;
    for (const auto& one : writer.poll()) steps.push_back(one.step);
    return steps;
  }
  std::vector<std::string> names() const { return test::names_in(folder.path); }

  Folder folder;
  double best_top1 = 0;
  std::promise<void> gate;
  std::shared_future<void> go_on;
  std::atomic<bool> held{false};
  FakeParameters parameters{small_model()};
  CheckpointDirectory directory;
  CheckpointWriter writer;
};

}  // namespace

TEST_CASE("a checkpoint holds the state of its save, though steps continue", "[checkpoint]") {
  Saves saves(2);
  saves.hold();
  saves.save(7);
  CHECK(saves.writer.busy());
  const auto then = saves.parameters.plain(backend::Part::weights, 0);
  auto later = then;
  for (float& value : later) value += 1;
  saves.parameters.import_slice(backend::Part::weights, 0, later);
  saves.release();
  saves.writer.finish();
  CHECK_FALSE(saves.writer.busy());
  FakeParameters loaded(small_model(), 5000);
  load_tensors(saves.directory.path_of(7), loaded, true);
  CHECK(loaded.plain(backend::Part::weights, 0) == then);
  const auto records = saves.writer.poll();
  REQUIRE(records.size() == 1);
  CHECK(records[0].step == 7);
  CHECK(records[0].bytes == fs::file_size(saves.directory.path_of(7)));
  CHECK(records[0].written_ms > 0);
}

TEST_CASE("an earlier checkpoint stays until a newer one is on the disk", "[checkpoint]") {
  Saves saves(2, 1);
  saves.save(1);
  saves.writer.finish();
  saves.hold();
  saves.save(2);
  while (saves.writer.seconds() == 0) std::this_thread::yield();
  CHECK(saves.names() == std::vector<std::string>{"step-00000001.h5"});
  saves.release();
  saves.writer.finish();
  CHECK(saves.names() == std::vector<std::string>{"step-00000002.h5"});
}

TEST_CASE("a best one that waits gives way to a newer one, and its record never comes",
          "[checkpoint]") {
  Saves saves(2);
  saves.hold();
  saves.save(10);
  while (saves.writer.seconds() == 0) std::this_thread::yield();
  saves.save(20, {.newest = true, .best = true});
  for (const std::uint64_t step : {30u, 40u}) saves.save(step, {.newest = false, .best = true});
  CHECK(saves.names().empty());
  saves.release();
  saves.writer.finish();
  CHECK(saves.written() == std::vector<std::uint64_t>{10, 40});
  CHECK(saves.names() == std::vector<std::string>{"best-00000040.h5", "best.h5", "step-00000010.h5",
                                                  "step-00000040.h5"});
  CHECK(fs::equivalent(saves.directory.best(), saves.directory.best_of(40)));
  CHECK(read_header(saves.directory.path_of(40)).progress.step == 40);
}

TEST_CASE("a best one that waits comes to the disk before a save that is no best", "[checkpoint]") {
  Saves saves(2);
  saves.hold();
  saves.save(10);
  while (saves.writer.seconds() == 0) std::this_thread::yield();
  saves.save(20, {.newest = false, .best = true});
  auto last = std::async(std::launch::async, [&] { saves.save(30); });
  CHECK(last.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  saves.release();
  last.get();
  saves.writer.finish();
  CHECK(saves.written() == std::vector<std::uint64_t>{10, 20, 30});
  CHECK(fs::equivalent(saves.directory.best(), saves.directory.best_of(20)));
}

TEST_CASE("with memory for one copy a save waits for the one before it", "[checkpoint]") {
  Saves saves(1);
  saves.hold();
  saves.save(10);
  const auto second = std::async(std::launch::async, [&] { saves.save(20); });
  CHECK(second.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  saves.release();
  second.wait();
  saves.writer.finish();
  CHECK(saves.written() == std::vector<std::uint64_t>{10, 20});
}

TEST_CASE("without memory for a copy a save returns when it is on the disk", "[checkpoint]") {
  Saves saves(0);
  for (const std::uint64_t step : {1u, 2u}) {
    saves.save(step);
    CHECK_FALSE(saves.writer.busy());
    CHECK(fs::exists(saves.directory.path_of(step)));
  }
}

TEST_CASE("a checkpoint that cannot be written is named, and the earlier one stays",
          "[checkpoint]") {
  Saves saves(2, 1);
  saves.save(1);
  saves.writer.finish();
  fs::create_directories(saves.directory.path_of(2) / "in the way");
  saves.save(2);
  CHECK_THROWS_WITH(saves.writer.finish(),
                    Catch::Contains("cannot write " + saves.directory.path_of(2).string()));
  verify_checkpoint(saves.directory.path_of(1));
}

TEST_CASE("a checkpoint that is due while one is written comes once the disk is free", "[run]") {
  SaveSchedule schedule(10);
  CHECK(schedule.due(10));
  CHECK_FALSE(schedule.due(11));
  schedule.saved();
  schedule.learn(false, true);
  CHECK(schedule.due(20));
  CHECK(schedule.writing());
  schedule.postpone();
  for (const std::uint64_t step : {21u, 22u}) CHECK(schedule.due(step));
  schedule.learn(false, false);
  CHECK((schedule.due(23) && !schedule.writing()));
  schedule.saved();
  CHECK_FALSE(schedule.due(24));
  schedule.learn(true, false);
  CHECK(schedule.due(24));
  CHECK_FALSE(SaveSchedule(0).due(10));
}
