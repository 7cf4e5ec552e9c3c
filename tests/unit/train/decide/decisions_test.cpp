#include "train/decisions.hpp"

#include <catch2/catch.hpp>

#include <set>

#include "lockstep/config/keys.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::train;
using lockstep::test::Folder;
using lockstep::test::write_file;

namespace {

const Decisions some_decisions{
    .backend = config::BackendChoice::cpu,
    .data = {.train = "flowers/train", .val = "flowers/val"},
    .choices = {config::ElementChoice::u16, config::TaskChoice::labels},
    .all_reduce = config::AllReduceChoice::two_level,
    .bucket_mb = 3.5f,
    .gpu_steps = {.graph = true},
    .winograd = {backend::Winograd::Mode::everywhere, {}},
    .recompute = {.mode = backend::Recompute::Mode::automatic, .reserved = 1 << 20}};

}  // namespace

TEST_CASE("decisions change the keys that a start decides, and no others", "[train][decide]") {
  const config::Config asked;
  const config::Config followed = some_decisions.in(asked);
  std::set<std::string> changed;
  for (const config::ConfigKey& key : config::config_keys())
    if (key.get(asked) != key.get(followed)) changed.insert(key.name);
  CHECK(changed == std::set<std::string>{"backend", "data.train", "data.val", "data.element",
                                         "data.task", "comm.all-reduce", "comm.bucket-mb", "graph",
                                         "tune", "fuse-norms", "winograd", "recompute"});
}

TEST_CASE("what was decided is saved, but not what a process has in memory", "[train][decide]") {
  config::Config read;
  config::apply_toml(read, config::to_toml(some_decisions.in({})), "config.toml");
  CHECK(read.data.val == "flowers/val");
  CHECK(read.data.element == config::ElementChoice::u16);
  CHECK(read.data.task == config::TaskChoice::labels);
  CHECK(read.comm.bucket_mb == 3.5f);
  CHECK(read.graph == config::Switch::on);
  CHECK(read.tune == config::Switch::off);
  CHECK(read.winograd.mode == backend::Winograd::Mode::everywhere);
  CHECK(read.recompute.mode == backend::Recompute::Mode::automatic);
  CHECK(read.recompute.reserved == 0);
}

TEST_CASE("a folder of two sets stands for both, and each of its parts for itself",
          "[train][decide]") {
  const Folder folder;
  const auto both = folder.path / "flowers", train = both / "train", val = both / "val";
  for (const auto& part : {train, val}) write_file(part / "0000.h5", "");
  const auto found = [](const std::filesystem::path& given_train,
                        const std::filesystem::path& given_val) {
    const DataSets sets =
        find_data_sets({.train = given_train.string(), .val = given_val.string()});
    return std::pair<std::filesystem::path, std::filesystem::path>(sets.train, sets.val);
  };
  CHECK(found(both, "") == std::pair(train, val));
  CHECK(found(both, both) == std::pair(train, val));
  CHECK(found(both, train) == std::pair(train, train));
  CHECK(found(train, "") == std::pair(train, std::filesystem::path()));
  CHECK(found(train, both) == std::pair(train, val));
  std::filesystem::remove_all(val);
  CHECK(found(both, "") == std::pair(train, std::filesystem::path()));
  CHECK_THROWS_WITH(found(train, both), Catch::Contains("flowers: has train/, but no val/"));
}
