#include "lockstep/train/run_data.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/control.hpp"
#include "tests/support/laws/solo.hpp"
#include "tests/support/networks/host_device.hpp"
#include "tests/unit/data/shard_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::device;
using namespace lockstep::train;
using Catch::Matchers::Contains;
using lockstep::comm::LoneControl;
using lockstep::test::Folder;
using lockstep::test::small_info;
using lockstep::test::write_shard;

namespace {

/// Twelve rows to train on in two epochs, four a step.
struct Fixture {
  Fixture() {
    spec.config.data.train = write_shard(folder.path / "train.h5", small_info(), 0, 12).string();
    spec.config.epochs = 2;
    spec.config.batch = 4;
    spec.config.data.workers = 1;
  }
  std::unique_ptr<RunData> open() { return std::make_unique<RunData>(spec, control); }

  Folder folder;
  RunSpec spec;
  LoneControl control;
  lockstep::test::HostDevice device;
};

std::vector<std::int32_t> labels_of(const data::Batch& batch) {
  std::vector<std::int32_t> labels;
  for (std::size_t row = 0; row < batch.rows; ++row) labels.push_back(batch.targets[row].label_a);
  return labels;
}

/// The labels of each batch from `progress` to the end of its epoch.
std::vector<std::vector<std::int32_t>> read_epoch(Fixture& run, const Progress& progress,
                                                  bool looks_ahead) {
  const auto data = run.open();
  data->start_loader(progress, run.device);
  std::vector<std::vector<std::int32_t>> batches;
  for (std::uint64_t b = progress.batch; b < data->steps_per_epoch(); ++b) {
    const data::Batch batch = data->next(b);
    batches.push_back(labels_of(batch));
    if (looks_ahead) data->look_ahead(b + 1);
    data->release(batch);
  }
  return batches;
}

}  // namespace

TEST_CASE("looking ahead changes no batch", "[run]") {
  Fixture run;
  const auto plain = read_epoch(run, {}, false);
  REQUIRE(plain.size() == 3);
  CHECK(read_epoch(run, {}, true) == plain);
}

TEST_CASE("looking ahead ends at the epoch's end", "[run]") {
  Fixture run;
  const auto data = run.open();
  data->start_loader({}, run.device);
  for (std::uint64_t b = 0; b < 3; ++b) data->release(data->next(b));
  CHECK_FALSE(data->look_ahead(3));
  CHECK(data->next(0).epoch == 1);
}

TEST_CASE("a run that starts in the middle of an epoch reads the rest of it", "[run]") {
  Fixture run;
  auto rest = read_epoch(run, {}, false);
  rest.erase(rest.begin());
  CHECK(read_epoch(run, {.step = 1, .batch = 1}, false) == rest);
}

TEST_CASE("an epoch that only lacks its validation is followed by the next one's rows", "[run]") {
  Fixture run;
  const auto data = run.open();
  data->start_loader({.step = 3, .batch = 3}, run.device);
  const data::Batch batch = data->next(0);
  CHECK(batch.epoch == 1);
}

TEST_CASE("the tiles of a replica read the same rows, and replicas share them, wherever they are",
          "[run][grid]") {
  for (const data::Shuffle shuffle : {data::Shuffle::global, data::Shuffle::node}) {
    Fixture run;
    run.spec.config.data.shuffle = shuffle;
    run.spec.nodes = comm::Nodes({{"m", "a"}, {"m", "b"}, {"m", "a"}, {"m", "b"}});
    std::vector<std::vector<std::vector<std::int32_t>>> read;
    std::size_t rows = 0;
    for (int rank = 0; rank < 4; ++rank) {
      run.spec.grid = comm::Grid(rank, {.replicas = 2, .tiles = 2});
      read.push_back(read_epoch(run, {}, false));
    }
    for (const auto& batch : read[0]) rows += batch.size();
    CHECK(rows == 6);
    CHECK(read[1] == read[0]);
    CHECK(read[3] == read[2]);
    CHECK(read[2] != read[0]);
  }
}

TEST_CASE("nothing is loaded when no step is left", "[run]") {
  Fixture run;
  CHECK_NOTHROW(run.open()->start_loader({.step = 6, .epoch = 1, .batch = 3}, run.device));
}

TEST_CASE("effects that do not fit the images are an error that names key and data", "[run]") {
  Fixture run;
  run.spec.config.data.pad = 4;  // images are 5 x 4
  CHECK_THROWS_WITH(run.open(), Contains("data.pad = 4") && Contains("train.h5"));
}

TEST_CASE("a validation set of other classes is an error that names both sets", "[run]") {
  Fixture run;
  data::DataSetInfo other = small_info();
  other.classes = {"cat", "dog"};
  run.spec.config.data.val = write_shard(run.folder.path / "val.h5", other, 0, 4).string();
  CHECK_THROWS_WITH(run.open(), Contains("train.h5") && Contains("val.h5"));
}
