#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "tests/unit/data/shard_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

TEST_CASE("the same rows make the same file, byte for byte", "[shard]") {
  const Folder folder;
  const std::string first = read_text(write_shard(folder.path / "a.h5", small_info(), 0, 30));
  ::usleep(1'100'000);  // HDF5's time stamps count seconds
  CHECK(read_text(write_shard(folder.path / "b.h5", small_info(), 0, 30)) == first);
}

TEST_CASE("rows larger than the writer's buffer are written whole", "[shard][slow]") {
  const Folder folder;
  DataSetInfo info = small_info();
  info.height = 1500;
  info.width = 1000;
  const DataSet set(write_shard(folder.path / "a.h5", info, 0, 3));
  std::vector<std::uint8_t> image(info.row_bytes());
  for (std::size_t row = 0; row < 3; ++row) {
    set.read(row, image);
    REQUIRE(image == pixels(info, row));
  }
}

TEST_CASE("a shard that is not finished never appears", "[shard]") {
  const Folder folder;
  const DataSetInfo info = small_info();
  {
    ShardWriter writer(folder.path / "a.h5", info, 2);
    writer.write(pixels(info, 0), 0);
    CHECK_THROWS_AS(writer.finish(), Error);
    CHECK_THROWS_AS(writer.write(pixels(info, 1), 3), Error);
    CHECK_THROWS_AS(writer.write(std::vector<std::uint8_t>(5), 0), Error);
  }
  CHECK(fs::is_empty(folder.path));
  CHECK_THROWS_WITH(ShardWriter(folder.path / "no" / "a.h5", info, 2),
                    Contains("no/a.h5") && Contains("No such file or directory"));
}

TEST_CASE("a disk that fills up is named, and no file is left", "[shard]") {
  // A limit on the size of files stands in for the full disk.
  struct FileSizeLimit {
    rlimit before{};
    explicit FileSizeLimit(rlim_t bytes) {
      ::signal(SIGXFSZ, SIG_IGN);
      ::getrlimit(RLIMIT_FSIZE, &before);
      const rlimit low{bytes, before.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &low);
    }
    ~FileSizeLimit() {
      ::setrlimit(RLIMIT_FSIZE, &before);
      ::signal(SIGXFSZ, SIG_DFL);
    }
  };
  const Folder folder;
  const DataSetInfo info = small_info();
  {
    ShardWriter writer(folder.path / "a.h5", info, 5000);
    for (std::size_t row = 0; row < 5000; ++row) writer.write(pixels(info, row), 0);
    const FileSizeLimit limit(100'000);
    CHECK_THROWS_WITH(writer.finish(), Contains("a.h5: cannot be written: File too large"));
  }
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("a data set's fingerprint follows from names, labels and each pixel, not from its place",
          "[shard]") {
  const Folder folder;
  const DataSetInfo info = small_info();
  for (const char* name : {"one", "copy", "other"}) fs::create_directories(folder.path / name);
  // Rows 0 to 8 and 9 to 17 have the same labels.
  write_shard(folder.path / "one/a.h5", info, 0, 9);
  write_shard(folder.path / "copy/a.h5", info, 0, 9);
  write_shard(folder.path / "other/a.h5", info, 9, 9);
  const auto of = [&](const char* name) { return DataSet(folder.path / name).fingerprint(); };
  CHECK(of("one") == of("copy"));
  CHECK(of("one") != of("other"));
  fs::rename(folder.path / "copy/a.h5", folder.path / "copy/b.h5");
  CHECK(of("one") != of("copy"));
  const auto hash = [&](const char* name) { return DataSet(folder.path / name).info().rows_hash; };
  CHECK(hash("one") == hash("copy"));  // whatever its files are called
  CHECK(hash("one") != hash("other"));
}
