#include <catch2/catch.hpp>

#include "tests/unit/data/loading/loader_fixture.hpp"

using namespace lockstep;
using namespace lockstep::device;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::loading;

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
