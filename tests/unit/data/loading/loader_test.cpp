#include "lockstep/data/loading/loader.hpp"

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

#include "data/loading/replacement.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "tests/support/host_device.hpp"
#include "tests/unit/data/shard_fixture.hpp"

using namespace lockstep;
using namespace lockstep::device;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

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

Seen look(const Batch& batch, std::size_t row_bytes) {
  Seen seen{batch.epoch, batch.index, batch.rows, batch.capacity, {}, {}};
  seen.images.assign(batch.images, batch.images + batch.capacity * row_bytes);
  for (std::size_t i = 0; i < batch.capacity; ++i) seen.labels.push_back(batch.targets[i].label_a);
  return seen;
}

std::vector<Seen> run(Fixture& fixture, const LoaderSpec& spec) {
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
void read_what_is_cut_off(Fixture& fixture, Loader& loader) {
  loader.release(loader.next());
  std::filesystem::resize_file(fixture.rows->files()[0], 10);
  for (;;) loader.release(loader.next());
}

void pause_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace

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
  spec.sampler.world = 4;
  std::vector<std::vector<Seen>> ranks;
  for (spec.sampler.rank = 0; spec.sampler.rank < 4; ++spec.sampler.rank) {
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
  spec.sampler.world = 4;
  spec.sampler.rank = 3;
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

TEST_CASE("a worker's error reaches next(), by file and row, and stays", "[loader]") {
  Fixture fixture(40);
  for (const std::size_t workers : {1, 3}) {
    LoaderSpec spec = fixture.spec(8, 100);
    spec.workers = workers;
    {
      Loader loader(*fixture.rows, spec, fixture.device);
      CHECK_THROWS_WITH(read_what_is_cut_off(fixture, loader), Contains("a.h5: row "));
      CHECK_THROWS_AS(loader.next(), InputError);
    }  // its workers read the file that open() replaces
    std::filesystem::remove(fixture.rows->files()[0]);
    write_shard(fixture.rows->files()[0], small_info(), 0, 14);
    fixture.open();
  }
}

TEST_CASE("broken rows are replaced by the same ones on every reader", "[loader]") {
  Fixture fixture(40);
  const std::size_t row_bytes = small_info().row_bytes();
  const auto spoil = [&](std::size_t row) {  // of the first file: changes its pixels, not its CRC
    const std::string file = read_text(fixture.rows->files()[0]);
    const std::vector<std::uint8_t> image = pixels(small_info(), row);
    std::string bytes = file;
    const std::size_t at = bytes.find(std::string(image.begin(), image.end()));
    REQUIRE(at != std::string::npos);
    bytes[at + 3] = static_cast<char>(bytes[at + 3] ^ 1);
    write_file(fixture.rows->files()[0], bytes);
    fixture.open();
  };
  LoaderSpec spec = fixture.spec(10, 2);
  const std::vector<Seen> whole = run(fixture, spec);
  spoil(2);
  spoil(9);
  CHECK_THROWS_AS(run(fixture, spec), BadRow);
  spec.replace_bad_rows = true;
  const std::vector<Seen> replaced = run(fixture, spec);
  for (spec.workers = 2; spec.workers < 5; ++spec.workers) CHECK(run(fixture, spec) == replaced);
  const Sampler sampler(spec.sampler);
  Loader loader(*fixture.rows, spec, fixture.device);
  for (std::size_t b = 0; b < replaced.size(); ++b) {
    const Batch batch = loader.next();
    const std::span<const Replaced> notes = loader.replaced(batch);
    std::size_t next = 0;
    for (std::size_t i = 0; i < 10; ++i) {
      const std::size_t row = sampler.row(b / 4, b % 4 * 10 + i);
      std::size_t by = row;
      for (std::uint32_t k = 0; by == 2 || by == 9; ++k) by = substitute(40, 1, b / 4, row, k);
      REQUIRE(replaced[b].labels[i] == static_cast<std::int32_t>(by % 3));
      const auto image = replaced[b].images.begin() + static_cast<std::ptrdiff_t>(i * row_bytes);
      const std::vector<std::uint8_t> want = pixels(small_info(), by);
      REQUIRE(std::equal(want.begin(), want.end(), image));
      if (by == row) continue;
      REQUIRE(next < notes.size());
      const Replaced& note = notes[next++];
      CHECK((note.place == i && note.row == row && note.by == by));
      CHECK_THAT(note.what, Contains("a.h5: row " + std::to_string(row) + " is damaged"));
    }
    CHECK(next == notes.size());
    loader.release(batch);
  }
  CHECK(replaced != whole);
}

TEST_CASE("a file that cannot be read is not replaced row by row", "[loader]") {
  Fixture fixture(40);
  LoaderSpec spec = fixture.spec(8, 100);
  spec.replace_bad_rows = true;
  Loader loader(*fixture.rows, spec, fixture.device);
  CHECK_THROWS_WITH(read_what_is_cut_off(fixture, loader), Contains("a.h5: row "));
}

TEST_CASE("an error of bind_worker reaches next()", "[loader]") {
  Fixture fixture(40);
  LoaderSpec spec = fixture.spec(8, 1);
  spec.workers = 2;
  spec.bind_worker = [] { throw std::runtime_error("cannot bind"); };
  Loader loader(*fixture.rows, spec, fixture.device);
  CHECK_THROWS_WITH(loader.next(), Contains("cannot bind"));
}

TEST_CASE("bind_worker runs once on each worker's own thread", "[loader]") {
  Fixture fixture(40);
  LoaderSpec spec = fixture.spec(8, 1);
  spec.workers = 3;
  std::mutex mutex;
  std::map<std::thread::id, int> calls;
  spec.bind_worker = [&] {
    const std::lock_guard lock(mutex);
    ++calls[std::this_thread::get_id()];
  };
  { Loader loader(*fixture.rows, spec, fixture.device); }
  CHECK(calls.size() == 3);
  CHECK(calls.count(std::this_thread::get_id()) == 0);
  for (const auto& [thread, count] : calls) CHECK(count == 1);
}

TEST_CASE("a loader can be destroyed at any time, quickly", "[loader]") {
  Fixture fixture(200);
  std::vector<double> took_s;
  for (int after = 0; after < 40; ++after) {
    LoaderSpec spec = fixture.spec(20, 1000);
    spec.workers = 1 + static_cast<std::size_t>(after) % 4;
    spec.slots = 1 + static_cast<std::size_t>(after) % 3;
    double begin = 0;
    {
      Loader loader(*fixture.rows, spec, fixture.device);
      if (after % 5 == 0) pause_ms(2);  // all slots are full: the workers wait
      for (int i = 0; i < after; ++i) loader.release(loader.next());
      if (after % 2 == 1) loader.next();  // and is never released
      begin = now_s();
    }
    took_s.push_back(now_s() - begin);
  }
  std::sort(took_s.begin(), took_s.end());
  CHECK(took_s[took_s.size() * 9 / 10] < 1);  // but for some, as the machine is shared
  CHECK(took_s.back() < 30);
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

TEST_CASE("a row that was asked for ahead of need is an error only when it is read", "[loader]") {
  Fixture fixture(40);
  LoaderSpec spec = fixture.spec(8, 1);
  spec.sampler.shuffle = Shuffle::none;
  spec.slots = 1;
  spec.readahead = 1000;
  std::filesystem::resize_file(fixture.rows->files()[1], 10);
  Loader loader(*fixture.rows, spec, fixture.device);
  loader.release(loader.next());
  CHECK_THROWS_WITH(
      [&] {
        for (;;) loader.release(loader.next());
      }(),
      Contains("b.h5: row "));
}
