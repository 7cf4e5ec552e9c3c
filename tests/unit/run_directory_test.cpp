#include <filesystem>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/train/run_directory.hpp"

using namespace lockstep;
using lockstep::train::claim;
using lockstep::train::RunDirectory;
using lockstep::train::RunLock;

TEST_CASE("a new run never writes over an existing one", "[run directory]") {
  const auto root =
      std::filesystem::temp_directory_path() / ("lockstep-run-" + std::to_string(getpid()));
  const RunDirectory run(root / "deep" / "inside");
  CHECK_NOTHROW(run.require_unused());
  make_directories(run.root());
  CHECK_NOTHROW(run.require_unused());
  write_text_atomically(run.config(), "model = \"resnet20\"\n");
  CHECK_THROWS_WITH(run.require_unused(), Catch::Contains("inside") && Catch::Contains("--resume"));
  CHECK(read_text(run.config()) == "model = \"resnet20\"\n");
  std::filesystem::remove_all(root);
}

TEST_CASE("of runs that begin at once each has a directory of its own", "[run directory]") {
  const auto root =
      std::filesystem::temp_directory_path() / ("lockstep-claim-" + std::to_string(getpid()));
  const std::string pattern = (root / "run-{n}").string();
  make_directories(root / "run-2");
  CHECK(claim(pattern) == (root / "run-1").string());
  CHECK(claim(pattern) == (root / "run-3").string());
  CHECK(std::filesystem::exists(RunDirectory(root / "run-3").checkpoints()));
  const std::string fixed = (root / "fixed").string();
  CHECK(claim(fixed) == fixed);
  CHECK_THROWS_WITH(claim(fixed), Catch::Contains("fixed: another run"));
  std::filesystem::remove_all(root);
}

TEST_CASE("one run writes in a directory, until it ends", "[run directory]") {
  const auto root =
      std::filesystem::temp_directory_path() / ("lockstep-lock-" + std::to_string(getpid()));
  make_directories(root);
  const RunDirectory run(root);
  for (int again = 0; again < 2; ++again) {
    const RunLock first(run);
    CHECK_THROWS_WITH(RunLock(run), Catch::Contains(root.string() + ": another run is at work"));
  }
  CHECK_THROWS_WITH(RunLock(RunDirectory(root / "none")),
                    Catch::Contains("none/.lock cannot be opened: No such file"));
  std::filesystem::remove_all(root);
}
