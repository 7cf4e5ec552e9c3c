#pragma once

#include <hdf5.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>
#include "data/loading/row_maker.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "tests/support/harness/pause.hpp"
#include "tests/support/networks/host_device.hpp"
#include "tests/unit/data/shard_fixture.hpp"

namespace lockstep::test::loading {

using namespace lockstep::data;

struct Fixture {
  Folder folder;
  lockstep::test::HostDevice device;
  std::unique_ptr<DataSet> rows;

  explicit Fixture(std::size_t count) {
    write_shard(folder.path / "a.h5", small_info(), 0, count / 3 + 1);
    write_shard(folder.path / "b.h5", small_info(), count / 3 + 1, count - count / 3 - 1);
    open();
  }
  void open() { rows = std::make_unique<DataSet>(folder.path); }
  LoaderSpec spec(std::size_t global_batch, std::uint64_t epochs) const {
    LoaderSpec spec;
    spec.sampler.rows = rows->info().rows;
    spec.sampler.global_batch = global_batch;
    spec.epochs = epochs;
    return spec;
  }
};

// The contents of a batch as the trainer sees them, by value.
struct Seen {
  std::uint64_t epoch = 0, index = 0;
  std::size_t rows = 0, capacity = 0;
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
  bool operator==(const Seen&) const = default;
};

inline Seen look(const Batch& batch, std::size_t row_bytes) {
  Seen seen{batch.epoch, batch.index, batch.rows, batch.capacity, {}, {}};
  seen.images.assign(batch.images, batch.images + batch.capacity * row_bytes);
  for (std::size_t i = 0; i < batch.capacity; ++i) seen.labels.push_back(batch.targets[i].label_a);
  return seen;
}

inline std::vector<Seen> run(Fixture& fixture, const LoaderSpec& spec) {
  Loader loader(*fixture.rows, spec, fixture.device);
  std::vector<Seen> all;
  const std::uint64_t count = spec.epochs * loader.sampler().batches() - spec.batch;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Batch batch = loader.next();
    all.push_back(look(batch, fixture.rows->info().row_bytes()));
    loader.release(batch);
  }
  CHECK_THROWS_AS(loader.next(), Error);
  return all;
}

/// Cuts off the first file and takes batches until next() throws.
inline void read_what_is_cut_off(Fixture& fixture, Loader& loader) {
  loader.release(loader.next());
  std::filesystem::resize_file(fixture.rows->files()[0], 10);
  for (;;) loader.release(loader.next());
}

}  // namespace lockstep::test::loading
