#include <fcntl.h>
#include <sys/file.h>

#include <catch2/catch.hpp>
#include <thread>

#include "lockstep/base/files/files.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using lockstep::test::Folder;
using lockstep::train::claim;
using lockstep::train::RunDirectory;
using lockstep::train::RunLock;

TEST_CASE("a new run never writes over an existing one", "[run directory]") {
  const Folder folder;
  const RunDirectory run(folder.path / "deep" / "inside");
  CHECK_NOTHROW(run.require_unused());
  make_directories(run.root());
  CHECK_NOTHROW(run.require_unused());
  write_text_atomically(run.config(), "model = \"resnet20\"\n");
  CHECK_THROWS_WITH(run.require_unused(), Catch::Contains("inside") && Catch::Contains("--resume"));
  CHECK(read_text(run.config()) == "model = \"resnet20\"\n");
}

TEST_CASE("runs that begin at once have separate directories", "[run directory]") {
  const Folder folder;
  const std::string pattern = (folder.path / "run-{n}").string();
  make_directories(folder.path / "run-2");
  CHECK(claim(pattern) == (folder.path / "run-1").string());
  CHECK(claim(pattern) == (folder.path / "run-3").string());
  CHECK(std::filesystem::exists(RunDirectory(folder.path / "run-3").checkpoints()));
  const std::string fixed = (folder.path / "fixed").string();
  CHECK(claim(fixed) == fixed);
  CHECK_THROWS_WITH(claim(fixed), Catch::Contains("fixed: another run"));
}

TEST_CASE("one run writes in a directory, until it ends", "[run directory]") {
  const Folder folder;
  const RunDirectory run(folder.path);
  for (int again = 0; again < 2; ++again) {
    CHECK_FALSE(RunLock::look(run).held_since_ms);
    const std::uint64_t before_ms = observe::unix_ms();
    const RunLock first(run);
    CHECK(RunLock::look(run).held_since_ms >= before_ms);
    CHECK(RunLock::look(run).held_since_ms <= observe::unix_ms());
    CHECK_THROWS_WITH(RunLock(run),
                      Catch::Contains(folder.path.string() + ": another run is writing here"));
  }
  CHECK_THROWS_WITH(RunLock(RunDirectory(folder.path / "none")),
                    Catch::Contains("none/.lock cannot be opened: No such file"));
}

TEST_CASE("who asks for the lock has it for no other that asks, and for no run that begins",
          "[run directory]") {
  const Folder folder;
  const RunDirectory run(folder.path);
  { const RunLock earlier(run); }
  Owned<int, ::close, -1> asks(::open((folder.path / ".lock").c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(::flock(asks.get(), LOCK_SH) == 0);
  CHECK_FALSE(RunLock::look(run).held_since_ms);
  std::thread asked([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    asks.reset();
  });
  CHECK_NOTHROW(RunLock(run));
  asked.join();
}

TEST_CASE("a lock that cannot be asked is not known to be free", "[run directory]") {
  const Folder folder;
  const RunDirectory run(folder.path);
  CHECK(RunLock::look(run).fault.empty());  // no run has begun here
  std::filesystem::create_symlink(".lock", folder.path / ".lock");
  const RunLock::State state = RunLock::look(run);
  CHECK_FALSE(state.held_since_ms);
  CHECK_THAT(state.fault, Catch::Contains((folder.path / ".lock").string() + ": Too many levels"));
}
