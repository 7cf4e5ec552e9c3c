#include "lockstep/data/loading/workers.hpp"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "lockstep/base/error.hpp"
#include "tests/unit/data/shard_fixture.hpp"

using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;

namespace {

struct Trial {
  Folder folder;
  DataSet rows{write_shard(folder.path / "a.h5", small_info(), 0, 40)};
  LoaderSpec spec;
  Trial() {
    spec.sampler.rows = 40;
    spec.sampler.global_batch = 16;
    spec.epochs = 1;
  }
};

}  // namespace

TEST_CASE("without a choice nothing is measured", "[loader]") {
  Trial fixture;
  CHECK(choose_workers(fixture.rows, fixture.spec, 1).workers == 1);
  CHECK(choose_workers(fixture.rows, fixture.spec, 0).rows_per_s == 0);
}

TEST_CASE("threads that bring nothing are not taken", "[loader]") {
  Trial fixture;
  // The threads' preparation takes the whole trial, except for the first thread.
  std::atomic<int> started{0};
  fixture.spec.bind_worker = [&] {
    if (started++ > 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  };
  const WorkerChoice choice = choose_workers(fixture.rows, fixture.spec, 64);
  CHECK(choice.workers == 1);
  CHECK(choice.rows_per_s > 0);
  CHECK(choice.rows_per_s == choice.rows_per_s_of_one);
  CHECK(started == 4);  // a warm-up, 1 thread, 2 threads
}

TEST_CASE("a row that cannot be read ends the measurement with its name", "[loader]") {
  Trial fixture;
  std::filesystem::resize_file(fixture.folder.path / "a.h5", 10);
  CHECK_THROWS_WITH(choose_workers(fixture.rows, fixture.spec, 4),
                    Catch::Matchers::Contains("a.h5: row "));
}
