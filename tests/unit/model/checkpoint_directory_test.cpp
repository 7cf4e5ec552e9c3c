#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "lockstep/base/files/files.hpp"
#include "tests/unit/model/checkpoint_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;

namespace {

CheckpointHeader header_of(std::uint64_t step) {
  CheckpointHeader header = some_header();
  header.progress.step = step;
  return header;
}

/// A run of 10 steps per epoch, validated after each with `top1`, and all that it saves.
void save_epochs(const CheckpointDirectory& directory, const std::vector<double>& top1) {
  const FakeParameters state(small_model());
  CheckpointHeader header = some_header();
  header.progress = {};
  Progress& at = header.progress;
  for (const double reached : top1) {
    at.step += 10;
    ++at.epoch;
    if (reached > at.best_score) {
      at.best_score = reached;
      at.best_epoch = at.epoch;
      write_checkpoint(directory.best_of(at.step), header, state);
      directory.prune();
      directory.name_best(at.step);
    }
    write_checkpoint(directory.path_of(at.step), header, state);
    directory.prune();
  }
}

}  // namespace

TEST_CASE("the newest valid checkpoint is taken, the newest K are kept", "[checkpoint]") {
  const Folder folder;
  const CheckpointDirectory directory(folder.path, 2);
  const FakeParameters state(small_model());
  CHECK_FALSE(directory.newest_valid());
  for (const std::uint64_t step : {5, 90, 100000000, 700})
    write_checkpoint(directory.path_of(step), header_of(step), state);
  write_file(folder.path / "step-00000900.h5.tmp12-0", "left over");

  CHECK(directory.newest_valid() == directory.path_of(100000000));
  const std::string whole = read_text(directory.path_of(100000000));
  write_file(directory.path_of(100000000), whole.substr(0, 1000));
  CHECK(directory.newest_valid() == directory.path_of(700));

  write_checkpoint(directory.path_of(800), header_of(800), state);
  directory.go_on_from({.step = 800}, directory);
  CHECK(directory.newest_first().front() == directory.path_of(800));
  CHECK(fs::exists(folder.path / "step-100000000.h5.aside"));
  directory.prune();
  CHECK(directory.newest_first() == std::vector{directory.path_of(800), directory.path_of(700)});
  CHECK_FALSE(fs::exists(folder.path / "step-00000900.h5.tmp12-0"));
}

TEST_CASE("every kept checkpoint keeps the best that it counts, no other is kept", "[checkpoint]") {
  const Folder folder;
  save_epochs({folder.path, 3}, {0.1, 0.2, 0.5, 0.4, 0.3, 0.6});
  CHECK(names_in(folder.path) == std::vector<std::string>{"best-00000030.h5", "best-00000060.h5",
                                                          "best.h5", "step-00000040.h5",
                                                          "step-00000050.h5", "step-00000060.h5"});
}

TEST_CASE("a run that resumes from any checkpoint finds the best that it counts", "[checkpoint]") {
  const Folder folder;
  const CheckpointDirectory directory(folder.path, 9);
  save_epochs(directory, {0.1, 0.5, 0.4, 0.6, 0.3});
  CHECK(read_header(directory.best()).progress.step == 40);

  for (const auto& [step, best] :
       {std::pair<std::uint64_t, std::uint64_t>{50, 40}, {40, 40}, {30, 20}, {10, 10}}) {
    const Progress at = read_header(directory.path_of(step)).progress;
    directory.go_on_from(at, directory);
    CHECK(read_header(directory.best()).progress.step == best);
    CHECK(read_text(directory.best()) == read_text(directory.best_of(best)));
    CHECK(directory.newest_first().front() == directory.path_of(step));
  }
  CHECK(names_in(folder.path).size() == 3 + 4 + 2);  // of step 10; set aside: later ones, two bests
  CHECK(fs::exists(folder.path / "best-00000040.h5.aside"));

  directory.go_on_from({.step = 10}, directory);  // before its validation
  CHECK_FALSE(fs::exists(directory.best()));
  CHECK(fs::exists(folder.path / "best.h5.aside"));
}

TEST_CASE("a resume puts nothing in place of what an earlier one put aside", "[checkpoint]") {
  const Folder folder;
  const CheckpointDirectory directory(folder.path, 2);
  const fs::path later = directory.path_of(30);
  for (const char* course : {"first", "second", "third"}) {
    write_file(later, course);
    write_file(directory.best(), course);
    directory.go_on_from({.step = 20}, directory);
    directory.prune();
    CHECK(directory.newest_first().empty());
  }
  for (const fs::path& name : {later, directory.best()}) {
    CHECK(read_text(name.string() + ".aside") == "first");
    CHECK(read_text(name.string() + ".aside-2") == "second");
    CHECK(read_text(name.string() + ".aside-3") == "third");
  }
}

TEST_CASE("a run that resumes in a new directory takes the best with it", "[checkpoint]") {
  const Folder folder;
  const CheckpointDirectory origin(folder.path / "a", 9), directory(folder.path / "b", 9);
  for (const char* name : {"a", "b"}) fs::create_directory(folder.path / name);
  save_epochs(origin, {0.1, 0.5, 0.4, 0.6});
  const auto before = names_in(folder.path / "a");
  directory.go_on_from(read_header(origin.path_of(30)).progress, origin);
  CHECK(names_in(folder.path / "a") == before);
  CHECK(names_in(folder.path / "b") == std::vector<std::string>{"best-00000020.h5", "best.h5"});
  CHECK(read_text(directory.best()) == read_text(origin.best_of(20)));
}

TEST_CASE("a damaged best is named and not taken", "[checkpoint]") {
  const Folder folder;
  const CheckpointDirectory directory(folder.path, 9);
  save_epochs(directory, {0.1, 0.5});
  std::string bytes = read_text(directory.best());
  bytes[5000] = static_cast<char>(bytes[5000] ^ 1);
  write_file(directory.best(), bytes);  // through its other name, too
  directory.go_on_from(read_header(directory.path_of(20)).progress, directory);
  CHECK_FALSE(fs::exists(directory.best()));
}

TEST_CASE("a checkpoint under the name of another step is passed over, and sound ones stay",
          "[checkpoint]") {
  const Folder folder;
  const CheckpointDirectory directory(folder.path, 9);
  save_epochs(directory, {0.1, 0.5, 0.4});
  fs::copy_file(directory.path_of(10), directory.path_of(90));
  fs::copy_file(directory.best_of(10), directory.best_of(25));
  const auto newest = directory.newest_valid();
  REQUIRE(newest == directory.path_of(30));
  directory.go_on_from(read_header(*newest).progress, directory);
  CHECK(names_in(folder.path) ==
        std::vector<std::string>{"best-00000010.h5", "best-00000020.h5", "best-00000025.h5",
                                 "best.h5", "step-00000010.h5", "step-00000020.h5",
                                 "step-00000030.h5", "step-00000090.h5.aside"});
  CHECK(read_header(directory.best()).progress.step == 20);
}

TEST_CASE("a pipe among the checkpoints is passed over", "[checkpoint]") {
  const Folder folder;
  const CheckpointDirectory directory(folder.path, 9);
  save_epochs(directory, {0.1});
  REQUIRE(::mkfifo(directory.path_of(20).c_str(), 0600) == 0);
  CHECK(directory.newest_valid() == directory.path_of(10));
}
