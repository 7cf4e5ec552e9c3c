#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/unit/data/shard_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

TEST_CASE("a folder that lacks a shard which the names count is an error, a pattern a warning",
          "[shard]") {
  const Folder folder;
  for (const int part : {0, 2})
    write_shard(folder.path / fmt::format("train-0000{}-of-00003.h5", part), small_info(),
                part * 10, 10);
  write_shard(folder.path / "more.h5", small_info(), 30, 10);
  CHECK_THROWS_WITH(DataSet(folder.path),
                    Contains("of the 3 shards that their names count, 2 are here: "
                             "train-00001-of-00003.h5 is missing"));
  const fs::path set = folder.path / "packed" / "train";
  fs::create_directories(set);
  write_shard(set / "train-00001-of-00002.h5", small_info(), 0, 10);
  CHECK_THROWS_WITH(DataSet(set), Contains("train-00000-of-00002.h5 is missing"));
  std::ofstream(set.parent_path() / "skipped.txt") << "a.png: broken\n";  // by pack --skip-bad
  CHECK(DataSet(set).info().rows == 10);
  const DataSet some(folder.path / "train-*.h5");
  CHECK(some.info().rows == 20);
  REQUIRE(some.doubts().size() == 1);
  CHECK_THAT(some.doubts()[0], Contains("train-00001-of-00003.h5 is missing"));
  CHECK(DataSet(folder.path / "train-00002-of-00003.h5").doubts().empty());
  write_shard(folder.path / "train-00001-of-00003.h5", small_info(), 10, 10);
  CHECK(DataSet(folder.path).info().rows == 40);
  CHECK(DataSet(folder.path).doubts().empty());
}

TEST_CASE("a shard that is there twice is an error that names both", "[shard]") {
  const Folder folder;
  const fs::path one = write_shard(folder.path / "a.h5", small_info(), 0, 17);
  write_shard(folder.path / "b.h5", small_info(), 17, 17);
  CHECK(DataSet(folder.path).info().rows == 34);
  for (const bool linked : {true, false}) {
    const fs::path two = folder.path / "c.h5";
    fs::remove(two);
    linked ? fs::create_hard_link(one, two) : fs::copy(one, two);
    CHECK_THROWS_WITH(DataSet(folder.path), Contains("c.h5: has the same rows as ") &&
                                                Contains("a.h5 in the same data set"));
  }
}
