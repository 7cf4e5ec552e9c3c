#include "lockstep/data/loading/loader.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "tests/unit/data/loading/loader_fixture.hpp"

using namespace lockstep;
using namespace lockstep::device;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::loading;

TEST_CASE("the loader's batches are the sampler's rows, augmented, in order", "[loader]") {
  Fixture fixture(50);
  LoaderSpec spec = fixture.spec(12, 3);
  spec.augment.pad = 1;
  spec.augment.flip = true;
  spec.augment.cutout = 2;
  spec.sampler.keep_last = true;
  spec.epoch = 4;
  const std::vector<Seen> batches = run(fixture, spec);
  REQUIRE(batches.size() == 15);
  const Sampler sampler(spec.sampler);
  const DataSetInfo info = small_info();
  const std::vector<std::uint8_t> mean = {128, 64, 32};  // of small_info(), times 255
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const Seen& batch = batches[b];
    REQUIRE(batch.epoch == 4 + b / 5);
    REQUIRE(batch.index == b % 5);
    REQUIRE(batch.capacity == 12);
    REQUIRE(batch.rows == (batch.index == 4 ? 2 : 12));
    for (std::size_t i = 0; i < batch.capacity; ++i) {
      std::vector<std::uint8_t> want(info.row_bytes(), 0);
      std::int32_t label = -1;
      if (i < batch.rows) {
        const std::size_t row = sampler.row(batch.epoch, batch.index * 12 + i);
        label = static_cast<std::int32_t>(row % 3);
        augment(spec.augment, placement(spec.augment, batch.epoch, row, 5, 4), 5, 4, 3, mean,
                pixels(info, row).data(), want.data());
      }
      REQUIRE(batch.labels[i] == label);
      const auto got = batch.images.begin() + static_cast<std::ptrdiff_t>(i * want.size());
      REQUIRE(std::equal(want.begin(), want.end(), got));
    }
  }
}

TEST_CASE("what batches hold does not depend on workers, slots or timing", "[loader]") {
  Fixture fixture(100);
  LoaderSpec spec = fixture.spec(40, 3);
  spec.augment.pad = 2;
  spec.augment.flip = true;
  spec.sampler.keep_last = true;
  const std::vector<Seen> alone = run(fixture, spec);
  for (const std::size_t workers : {1, 2, 5}) {
    for (const std::size_t slots : {1, 2, 7}) {
      spec.workers = workers;
      spec.slots = slots;
      REQUIRE(run(fixture, spec) == alone);
    }
  }
}

TEST_CASE("batches are mixed the same by any number of workers, and padding is not", "[loader]") {
  Fixture fixture(100);
  LoaderSpec spec = fixture.spec(40, 3);
  spec.sampler.keep_last = true;
  const std::vector<Seen> plain = run(fixture, spec);
  spec.mix = {.mixup = 1, .cutmix = 1};
  const std::vector<Seen> alone = run(fixture, spec);
  CHECK(alone != plain);
  for (std::size_t b = 0; b < plain.size(); ++b) {
    const auto at = static_cast<std::ptrdiff_t>(plain[b].rows * small_info().row_bytes());
    REQUIRE(std::equal(plain[b].images.begin() + at, plain[b].images.end(),
                       alone[b].images.begin() + at));
  }
  for (spec.workers = 2; spec.workers < 6; ++spec.workers) REQUIRE(run(fixture, spec) == alone);
}

TEST_CASE("a loader that begins later gives what one that began earlier gives there", "[loader]") {
  Fixture fixture(30);
  const LoaderSpec spec = fixture.spec(8, 4);  // 3 batches in each epoch
  const std::vector<Seen> whole = run(fixture, spec);
  REQUIRE(whole.size() == 12);
  for (std::size_t consumed = 0; consumed < 12; ++consumed) {
    LoaderSpec later = spec;
    later.epoch = consumed / 3;
    later.batch = consumed % 3;
    later.epochs = 4 - later.epoch;
    const auto from = whole.begin() + static_cast<std::ptrdiff_t>(consumed);
    REQUIRE(run(fixture, later) == std::vector<Seen>(from, whole.end()));
  }
  LoaderSpec at_end = spec;
  at_end.epoch = 1;
  at_end.batch = 3;  // the end of an epoch is the beginning of the next
  at_end.epochs = 3;
  REQUIRE(run(fixture, at_end) == std::vector<Seen>(whole.begin() + 6, whole.end()));
}

TEST_CASE("ranks' batches side by side are the batch of one rank", "[loader]") {
  Fixture fixture(45);
  LoaderSpec spec = fixture.spec(12, 2);
  spec.augment.pad = 1;
  spec.sampler.keep_last = true;
  const std::vector<Seen> alone = run(fixture, spec);
  spec.sampler.replicas = 4;
  std::vector<std::vector<Seen>> ranks;
  for (spec.sampler.replica = 0; spec.sampler.replica < 4; ++spec.sampler.replica) {
    ranks.push_back(run(fixture, spec));
  }
  const std::size_t row_bytes = fixture.rows->info().row_bytes();
  for (std::size_t b = 0; b < alone.size(); ++b) {
    std::vector<std::uint8_t> images;
    for (const auto& rank : ranks) {
      const auto end =
          rank[b].images.begin() + static_cast<std::ptrdiff_t>(rank[b].rows * row_bytes);
      images.insert(images.end(), rank[b].images.begin(), end);
    }
    images.resize(alone[b].images.size(), 0);
    REQUIRE(images == alone[b].images);
  }
}

TEST_CASE("a rank without rows gets a batch of padding", "[loader]") {
  Fixture fixture(9);
  LoaderSpec spec = fixture.spec(8, 1);
  spec.sampler.replicas = 4;
  spec.sampler.replica = 3;
  spec.sampler.keep_last = true;
  Loader loader(*fixture.rows, spec, fixture.device);
  loader.release(loader.next());
  const Batch batch = loader.next();
  CHECK(batch.rows == 0);
  CHECK(batch.capacity == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(batch.targets[i].label_a == -1);
    CHECK(batch.targets[i].label_b == -1);
    CHECK(batch.targets[i].mix == 1);
  }
  CHECK(std::all_of(batch.images, batch.images + 2 * 60, [](std::uint8_t v) { return v == 0; }));
}

TEST_CASE("batches stay as they are until they are released", "[loader]") {
  Fixture fixture(64);
  LoaderSpec spec = fixture.spec(4, 4);
  spec.slots = 3;
  spec.workers = 2;
  Loader loader(*fixture.rows, spec, fixture.device);
  const std::size_t row_bytes = fixture.rows->info().row_bytes();
  const Batch first = loader.next(), second = loader.next();
  const Seen before = look(first, row_bytes);
  CHECK(reinterpret_cast<std::uintptr_t>(first.images) % 64 == 0);
  loader.release(second);  // out of order
  loader.release(loader.next());
  pause_ms(5);
  CHECK(look(first, row_bytes) == before);
  CHECK_THROWS_AS(loader.next(), Error);  // its slot is still lent: this would wait for ever
  loader.release(first);
  CHECK(loader.next().index == 3);
  CHECK_THROWS_AS(loader.release(second), Error);
}

TEST_CASE("ready() tells when next() gives a batch at once", "[loader]") {
  Fixture fixture(16);
  LoaderSpec spec = fixture.spec(8, 1);
  spec.slots = 1;
  Loader loader(*fixture.rows, spec, fixture.device);
  for (std::size_t i = 0; i < 2; ++i) {
    while (!loader.ready()) pause_ms(1);
    const Batch batch = loader.next();
    CHECK(batch.index == i);
    CHECK_FALSE(loader.ready());  // its only slot is lent
    loader.release(batch);
  }
  pause_ms(5);
  CHECK_FALSE(loader.ready());  // the epochs are over
}

TEST_CASE("the loader runs ahead into the next epoch", "[loader]") {
  // Once everything has been prefetched, no one notices that the files are damaged. A machine that
  // is busy elsewhere gets more time for it.
  std::size_t batches = 0;
  for (int ms = 100; batches < 4 && ms < 30'000; ms *= 10) {
    Fixture fixture(16);
    LoaderSpec spec = fixture.spec(8, 2);
    spec.slots = 4;
    Loader loader(*fixture.rows, spec, fixture.device);
    pause_ms(ms);
    for (const auto& file : fixture.rows->files()) std::filesystem::resize_file(file, 10);
    try {
      for (batches = 0; batches < 4; ++batches) {
        const Batch batch = loader.next();
        CHECK(batch.epoch == batches / 2);
        loader.release(batch);
      }
    } catch (const InputError&) {  // not yet read
    }
  }
  CHECK(batches == 4);
}

TEST_CASE("slow trainer, slow reader: every batch arrives", "[loader]") {
  Fixture fixture(24);
  LoaderSpec spec = fixture.spec(6, 5);
  spec.workers = 2;
  spec.slots = 2;
  Loader loader(*fixture.rows, spec, fixture.device);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Batch batch = loader.next();
    REQUIRE(batch.epoch * 4 + batch.index == i);
    if (i % 3 == 0) pause_ms(2);
    loader.release(batch);
  }
}

TEST_CASE("compressed shards give the same batches", "[loader]") {
  Fixture fixture(60);
  LoaderSpec spec = fixture.spec(20, 2);
  spec.augment.flip = true;
  spec.workers = 3;
  spec.sampler.block = 4;
  spec.sampler.window = 2;
  std::vector<std::vector<Seen>> plain;
  constexpr Shuffle all_orders[] = {Shuffle::none, Shuffle::global, Shuffle::block, Shuffle::node};
  for (const Shuffle order : all_orders) {
    spec.sampler.shuffle = order;
    spec.readahead = 0;
    plain.push_back(run(fixture, spec));
    spec.readahead = 30;
    CHECK(run(fixture, spec) == plain.back());
  }
  for (const auto& path : fixture.rows->files()) {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t old = H5Dopen2(file, "images", H5P_DEFAULT);
    const hid_t space = H5Dget_space(old);
    std::vector<std::uint8_t> all(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    H5Dread(old, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data());
    H5Dclose(old);
    H5Ldelete(file, "images", H5P_DEFAULT);
    const hsize_t chunk[] = {4, 5, 4, 3};
    const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(how, 4, chunk);
    H5Pset_deflate(how, 1);
    const hid_t images =
        H5Dcreate2(file, "images", H5T_STD_U8LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    H5Dwrite(images, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data());
    H5Dclose(images);
    H5Pclose(how);
    H5Sclose(space);
    H5Fclose(file);
  }
  fixture.open();
  REQUIRE_FALSE(fixture.rows->storage().contiguous);
  for (std::size_t i = 0; i < std::size(all_orders); ++i)
    for (const std::size_t readahead : {0, 7}) {
      spec.sampler.shuffle = all_orders[i];
      spec.readahead = readahead;
      CHECK(run(fixture, spec) == plain[i]);
    }
}

TEST_CASE("a balanced loader takes rows by their visits, from any batch on, with any workers",
          "[loader]") {
  Fixture fixture(50);
  LoaderSpec spec = fixture.spec(10, 2);
  spec.augment.pad = 2;
  spec.augment.flip = true;
  std::vector<std::int32_t> labels(50, 0);
  labels[7] = 1;
  spec.sampler.balance = balance_classes(labels, 2, 1);
  const std::vector<Seen> whole = run(fixture, spec);
  const Sampler sampler(spec.sampler);
  const DataSetInfo info = small_info();
  const std::vector<std::uint8_t> mean = {128, 64, 32};
  std::set<std::vector<std::uint8_t>> of_row_7;
  for (const Seen& batch : whole)
    for (std::size_t i = 0; i < batch.rows; ++i) {
      const RowVisit at = sampler.visit(batch.epoch, batch.index * 10 + i);
      std::vector<std::uint8_t> want(info.row_bytes());
      augment(spec.augment, placement(spec.augment, at.visit, at.row, 5, 4), 5, 4, 3, mean,
              pixels(info, at.row).data(), want.data());
      const auto got = batch.images.begin() + static_cast<std::ptrdiff_t>(i * want.size());
      REQUIRE(std::equal(want.begin(), want.end(), got));
      if (at.row == 7) of_row_7.insert(want);
    }
  CHECK(of_row_7.size() > 10);  // it comes 25 times an epoch, each time cut out elsewhere
  spec.workers = 3;
  spec.batch = 3;
  const std::vector<Seen> rest = run(fixture, spec);
  CHECK(std::equal(rest.begin(), rest.end(), whole.begin() + 3, whole.end()));
}
