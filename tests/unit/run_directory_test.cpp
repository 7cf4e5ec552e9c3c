#include <filesystem>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/train/run_directory.hpp"

using namespace lockstep;
using lockstep::train::first_free;
using lockstep::train::RunDirectory;

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
  CHECK(first_free((root / "run-{n}").string()) == (root / "run-1").string());
  make_directories(root / "run-1");
  make_directories(root / "run-2");
  CHECK(first_free((root / "run-{n}").string()) == (root / "run-3").string());
  CHECK(first_free("fixed") == "fixed");
  std::filesystem::remove_all(root);
}
