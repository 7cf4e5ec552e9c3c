#include <catch2/catch.hpp>

#include "lockstep/config/config.hpp"
#include "lockstep/config/keys.hpp"
#include "tests/unit/config/config_fixture.hpp"

using namespace lockstep::config;
using Catch::Contains;
using lockstep::test::parsed;

TEST_CASE("help shows a key's values, range and default in one notation", "[config]") {
  const auto shows = [](const char* name, const std::string& values, const std::string& range,
                        const std::string& usual) {
    INFO(name);
    const ConfigKey* key = find_key(name);
    REQUIRE(key != nullptr);
    CHECK(key->values() == values);
    CHECK(key->range_text() == range);
    CHECK(key->usual_value() == usual);
  };
  shows("data.size", "NUMBER", "auto, or 1 to 65535", "auto");
  shows("comm.bucket-mb", "SIZE", "auto, or 0.001 to 4096", "auto");
  shows("optim.momentum", "NUMBER", "0 to 0.999999", "0.9");
  shows("optim.warmup-epochs", "NUMBER", "0 to epochs", "0");
  shows("data.mixup", "NUMBER", "0, or 0.01 to 100", "0");
  shows("checkpoint.keep", "NUMBER", "at least 1", "3");
  shows("precision", "fp32|tf32|bf16|fp16", "", "fp32");
  shows("data.flip", "true|false", "", "false");
  shows("graph", "true|false|auto", "", "auto");
  shows("out", "TEXT", "", "runs/MODEL-{n}");
  shows("optim.milestones", "N,N,...", "", "");
  for (const ConfigKey& key : config_keys()) {
    INFO(key.name);
    CHECK((key.kind != TomlKind::number || key.range));
    if (!key.has_auto) continue;
    Config by_word, by_number;
    key.set(by_word, "auto");
    key.set(by_number, "0");
    CHECK(key.get(by_word) == "auto");
    CHECK(key.get(by_number) == "auto");
    CHECK(to_toml(parsed(to_toml(by_word))) == to_toml(by_number));
  }
}

TEST_CASE("what a key names exists, and each choice reads back", "[config]") {
  CHECK(find_key("data.siz") == nullptr);
  for (const ConfigKey& key : config_keys()) {
    INFO(key.name);
    if (key.range && !key.range->high_key.empty()) CHECK(find_key(key.range->high_key) != nullptr);
    if (key.need) CHECK(find_key(key.need->key) != nullptr);
    if (key.choices.empty()) continue;
    for (const std::string& choice : key.choices) {
      Config config;
      key.set(config, choice);
      CHECK(key.get(config) == choice);
    }
    Config config;
    CHECK_THROWS_WITH(
        key.set(config, "none of them"),
        Contains(key.name + ": 'none of them' is not known; choose " + key.choices.front() + ", "));
  }
}
