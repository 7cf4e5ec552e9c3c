#include <cmath>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "config/key.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/keys.hpp"
#include "tests/unit/config/config_fixture.hpp"

using namespace lockstep;
using namespace lockstep::config;
using Catch::Contains;
using lockstep::test::parsed;
using lockstep::test::with_data;

TEST_CASE("a configuration survives the way through its own text", "[config]") {
  Config config = with_data();
  config.optim.lr = 0.30000001f;
  config.optim.decay = lockstep::optim::Decay::step;
  config.optim.milestones = {30, 60, 80};
  config.data.flip = true;
  config.data.val = "a \"quoted\" #1 path\\x";
  config.out = "new\nline,\ttab,\r\x01\x1f\x7f, ä€😀";
  config.seed = 18446744073709551615ull;
  const std::string text = to_toml(config);
  Config again;
  apply_toml(again, text, "saved");
  CHECK(to_toml(again) == text);
  CHECK(again.optim.lr == config.optim.lr);
  CHECK(again.optim.milestones == config.optim.milestones);
  CHECK(again.data.val == config.data.val);
  CHECK(again.out == config.out);
  CHECK(again.seed == config.seed);
}

TEST_CASE("every key has a place in the file, a help text, and takes its own default", "[config]") {
  for (const ConfigKey& key : config_keys()) {
    Config config;
    INFO(key.name);
    CHECK_FALSE(key.help.empty());
    key.set(config, key.get(config));
    CHECK(to_toml(config) == to_toml(Config{}));
    if (key.kind != TomlKind::text)
      CHECK_THROWS_WITH(key.set(config, "1x"), Contains(key.name) && Contains("1x"));
  }
}

TEST_CASE("the global batch follows from the batch per rank, and a contradiction names both",
          "[config]") {
  Config config = with_data();
  config.batch_per_rank = 32;
  resolve(config, 4);
  CHECK(config.batch == 128);
  Config both = with_data();
  both.batch = 100;
  both.batch_per_rank = 32;
  CHECK_THROWS_WITH(resolve(both, 4),
                    Contains("batch = 100") && Contains("batch-per-rank = 32") && Contains("128"));
}

TEST_CASE("a global batch that ranks and micro-batches cannot share is an error", "[config]") {
  Config config = with_data();
  config.batch = 100;
  config.accumulate = 2;
  resolve(config, 3);  // 34, 33, 33
  CHECK(config.batch == 100);
  config.batch = 3;
  CHECK_THROWS_WITH(resolve(config, 2), Contains("batch = 3") && Contains("2 x 2 = 4"));
  config.batch = 100;
  config.graph = Switch::on;
  CHECK_NOTHROW(resolve(config, 2));
  CHECK_THROWS_WITH(resolve(config, 3), Contains("graph = true") && Contains("3 x 2 = 6"));
}

TEST_CASE("a graph, and an exchange whose steps are not alike, are an error that names both keys",
          "[config]") {
  const auto refused = [](const std::string& text, const std::string& key) {
    Config config = parsed(text);
    config.graph = Switch::on;
    CHECK_THROWS_WITH(resolve(config, 2), Contains("graph = true") && Contains(key));
    for (const Switch open : {Switch::off, Switch::automatic}) {
      config.graph = open;
      CHECK_NOTHROW(resolve(config, 2));
    }
    CHECK_THAT(why_steps_differ(config, 2), Contains("graph = true") && Contains(key));
  };
  refused("[sync]\nevery = 4", "sync.every = 4");
  refused("[sync]\ngossip = true", "sync.gossip = true");
  refused("[comm]\npower-sgd = 2\npower-sgd-from-epoch = 1", "comm.power-sgd = 2");
  refused("[comm]\npower-sgd = 2\n[optim]\nwarmup-epochs = 1", "comm.power-sgd = 2");
  Config at_once = parsed("[comm]\npower-sgd = 2");
  at_once.graph = Switch::on;
  CHECK_NOTHROW(resolve(at_once, 2));
  CHECK(why_steps_differ(at_once, 2).empty());
  CHECK_FALSE(why_steps_differ(at_once, 3).empty());  // 128 rows
}

TEST_CASE("engines chosen by measuring and bits that must repeat contradict each other",
          "[config]") {
  Config config = with_data();
  config.deterministic = true;
  CHECK_NOTHROW(resolve(config, 1));
  config.tune = Switch::on;
  CHECK_THROWS_WITH(resolve(config, 1), Contains("tune and deterministic contradict"));
  config.tune = Switch::off;
  config.fuse_norms = Switch::on;
  config.precision = backend::Precision::fp16;
  CHECK_THROWS_WITH(resolve(config, 1), Contains("fuse-norms and deterministic contradict"));
}

TEST_CASE("a switch is auto, or true or false as a boolean key is, in files and options",
          "[config]") {
  CHECK(with_data().graph == Switch::automatic);
  for (const char* name : {"graph", "tune", "fuse-norms"}) {
    const ConfigKey* key = find_key(name);
    REQUIRE(key != nullptr);
    CHECK(key->takes_no_value());
    for (const std::string value : {"auto", "true", "false"}) {
      INFO(name << " = " << value);
      Config config = parsed(fmt::format("{} = \"{}\"", name, value));
      CHECK(key->get(config) == value);
      set_key(config, name, value);
      CHECK(key->get(config) == value);
      const std::string text = value == "auto" ? "\"auto\"" : value;
      CHECK_THAT(to_toml(config), Contains(fmt::format("\n{} = {}\n", name, text)));
      CHECK(to_toml(parsed(to_toml(config))) == to_toml(config));
      if (value != "auto") CHECK(key->get(parsed(fmt::format("{} = {}", name, value))) == value);
    }
    CHECK_THROWS_WITH(parsed(fmt::format("{} = 1", name)),
                      Contains(name) && Contains("takes true, false or \"auto\""));
    CHECK_THROWS_WITH(parsed(fmt::format("{} = \"yes\"", name)),
                      Contains("'yes' is not known; choose auto, true, false"));
  }
}

TEST_CASE("values out of range are errors that name the key", "[config]") {
  const auto refused = [](const std::string& text, const std::string& key) {
    Config config = parsed(text);
    CHECK_THROWS_WITH(resolve(config, 1), Contains(key));
  };
  refused("epochs = 0", "epochs");
  refused("accumulate = 0", "accumulate");
  refused("threads = 1025", "threads");
  refused("data.workers = 1025", "data.workers");
  refused("data.slots = 1025", "data.slots");
  refused("data.slots = 0", "data.slots");
  refused("optim.momentum = 1", "optim.momentum");
  refused("optim.lr = -0.1", "optim.lr");
  for (const char* ema : {"1", "1.5", "-0.1"})
    refused(fmt::format("optim.ema = {}", ema), "optim.ema");
  refused("optim.clip-norm = -1", "optim.clip-norm");
  refused("optim.warmup-epochs = 9", "optim.warmup-epochs");
  refused("optim.decay = \"step\"", "optim.milestones");
  refused("batch = 18446744073709551615", "batch");
  refused("accumulate = 16777217", "accumulate");
  refused("resume = \"auto\"", "--out");
}

TEST_CASE("the bounds of a range belong to it, and what is outside names them", "[config]") {
  for (const ConfigKey& key : config_keys()) {
    if (!key.range) continue;
    INFO(key.name);
    const auto judged = [&key](double value) {
      Config config = with_data();
      key.set(config, fmt::format("{}", value));
      check_ranges(config);
    };
    CHECK_NOTHROW(judged(key.range->low));
    if (key.range->or_zero) CHECK_NOTHROW(judged(0));
    if (key.range->low >= 1) CHECK_THROWS_WITH(judged(0), Contains(key.name + " = 0: must "));
    if (!std::isfinite(key.range->high)) continue;
    CHECK_NOTHROW(judged(key.range->high));
    CHECK_THROWS_WITH(judged(key.range->high + 1),
                      Contains(key.name) && Contains(fmt::format("lie between {} and {}",
                                                                 key.range->low, key.range->high)));
  }
}

TEST_CASE("a key of another update rule is an error that names both", "[config]") {
  const auto refused = [](const std::string& rule, const std::string& line,
                          const std::string& what) {
    Config config = parsed("[optim]\nrule = \"" + rule + "\"\n" + line);
    CHECK_THROWS_WITH(resolve(config, 1), Contains(line.substr(0, line.find(' '))) &&
                                              Contains("optim.rule") && Contains(what));
  };
  refused("sgd", "lars-momentum = \"outside\"", "'sgd'; this momentum belongs to 'lars'");
  refused("sgd", "beta2 = 0.99", "'sgd'; second moments belong to 'lamb'");
  refused("lars", "epsilon = 0.1", "'lars'; it belongs to 'lamb'");
  refused("lamb", "trust = 0.1", "'lamb'; the trust coefficient belongs to 'lars'");
  refused("lamb", "nesterov = true", "has no meaning with optim.rule = lamb");
  refused("sgd", "newton-schulz = 3", "'sgd'; they belong to 'muon'");
  refused("lars", "rest-lr-factor = 0.5", "'lars'; the rest belongs to 'muon'");
  refused("lamb", "rest-momentum = 0.5", "'lamb'; the rest belongs to 'muon'");
  for (const char* text :
       {"rule = \"muon\"\nnesterov = true\nnewton-schulz = 3\nrest-momentum = 0.85",
        "rule = \"lars\"\nlars-momentum = \"corrected\"\nnesterov = true",
        "rule = \"lamb\"\nbeta2 = 0.99\nepsilon = 1e-8"}) {
    Config config = parsed(std::string("[optim]\n") + text);
    CHECK_NOTHROW(resolve(config, 1));
    Config again = parsed(to_toml(config));
    CHECK(to_toml(again) == to_toml(config));
  }
}

TEST_CASE("a key that cannot have an effect is an error, and a resolved configuration reads back",
          "[config]") {
  const auto refused = [](const std::string& text, const std::string& key) {
    Config config = parsed("epochs = 9\n" + text);
    CHECK_THROWS_WITH(resolve(config, 1), Contains(key) && Contains("no effect"));
  };
  const auto accepted = [](const std::string& text) {
    Config config = parsed("epochs = 9\n" + text);
    CHECK_NOTHROW(resolve(config, 1));
    Config again = parsed(to_toml(config));
    CHECK_NOTHROW(resolve(again, 1));
    CHECK(to_toml(again) == to_toml(config));
  };
  refused("[optim]\ndecay = \"constant\"\nfinal-lr = 0.01", "optim.final-lr = 0.01");
  refused("[optim]\ndecay = \"step\"\nmilestones = [3]\nfinal-lr = 0.01", "optim.final-lr");
  refused("optim.milestones = [3]", "optim.decay is 'cosine'");
  refused("[optim]\ndecay = \"step\"\nmilestones = [3, 9]", "3,9: 9");
  refused("optim.factor = 0.5", "optim.factor");
  refused("optim.power = 3", "optim.power");
  refused("optim.warmup-start = 0.01",
          "optim.warmup-start = 0.01 would have no effect: optim.warmup-epochs is 0");
  refused("[optim]\nmomentum = 0\nnesterov = true", "optim.nesterov");
  refused("optim.trust = 0.01", "the trust coefficient belongs to 'lars'");
  refused("memory-limit = 1000", "recompute is 'none'; 'auto' keeps the limit");
  accepted("recompute = \"auto\"\nmemory-limit = 1000");
  accepted("recompute = \"auto\"\nmemory-limit = \"4GB\"");
  accepted("recompute = \"12\"");
  refused("[data]\ncrop = \"random\"\nmin-area = 0.5", "data.min-area = 0.5");
  refused("data.block = 10", "data.shuffle is 'global'; it mixes all rows");
  refused("data.window = 3", "data.window = 3");
  refused("[data]\nshuffle = \"node\"\nwindow = 3", "data.shuffle is 'node'");
  accepted("[data]\nshuffle = \"node\"\nblock = 10");
  accepted("[data]\nshuffle = \"block\"\nblock = 10\nwindow = 3");
  refused("data.val-images = \"x\"", "data.val is ''");
  refused("data.val-labels = \"y\"", "data.val-labels = y");
  refused("eval.every-epochs = 3", "eval.every-epochs = 3");
  refused("eval.batch = 7", "nothing is validated");
  accepted(
      "[data]\nval = \"v\"\nval-images = \"x\"\nval-labels = \"y\"\n"
      "[eval]\nbatch = 7\nevery-epochs = 3");
  refused("data.randaugment-magnitude = 3", "data.randaugment is 0");
  accepted("[data]\nrandaugment = 2\nrandaugment-magnitude = 3");
  refused("data.bad-rows-limit = 5", "data.on-bad-row is 'error'; the first bad row ends the run");
  accepted("[data]\non-bad-row = \"skip\"\nbad-rows-limit = 5");
  refused("[optim]\nweight-decay = 0\ndecay-norm-and-bias = false", "optim.weight-decay is 0");
  refused("backend = \"cpu\"\nwinograd = \"false\"\ndeterministic = true", "deterministic = true");
  refused("backend = \"clock\"\ndeterministic = true", "deterministic = true");
  accepted("backend = \"cpu\"\ndeterministic = true");
  refused("backend = \"cpu\"\n[comm]\nshare-gpu = true", "no rank uses a GPU");
  accepted("backend = \"cuda\"\ndeterministic = true\n[comm]\nshare-gpu = true");
  accepted("[optim]\ndecay = \"constant\"\nwarmup-epochs = 1\nwarmup-start = 0.01");
  accepted("[optim]\ndecay = \"step\"\nmilestones = [0, 8]\nfactor = 0.5");
  accepted("[optim]\ndecay = \"polynomial\"\npower = 1\nfinal-lr = 0.01");
  accepted("optim.final-lr = 0.01");
  accepted("optim.power = 2");  // as not given
}

TEST_CASE("a switch that is on needs what gives it an effect, and one that is off needs nothing",
          "[config]") {
  const auto refused = [](const std::string& text, const std::string& why) {
    Config config = parsed(text);
    CHECK_THROWS_WITH(resolve(config, 1), Contains("no effect") && Contains(why));
  };
  const auto accepted = [](const std::string& text) {
    Config config = parsed(text);
    CHECK_NOTHROW(resolve(config, 1));
  };
  refused("fuse-norms = true", "precision is 'fp32'; it has engines for fp16 only");
  accepted("fuse-norms = false");
  accepted("precision = \"fp16\"\nfuse-norms = true");
  refused("backend = \"cpu\"\ngraph = true", "only a GPU records steps");
  refused("backend = \"clock\"\ntune = true", "only a GPU's convolutions");
  accepted("backend = \"cpu\"\ngraph = false\ntune = false");
  refused("tune = false\ntune-cache = \"plans.txt\"",
          "tune is false; the file keeps what it measures");
  refused("backend = \"cpu\"\ntune-cache = \"plans.txt\"", "tune is auto");
  refused("deterministic = true\ntune-cache = \"plans.txt\"", "tune is auto");
  accepted("tune-cache = \"plans.txt\"");
  accepted("tune = true\ntune-cache = \"plans.txt\"");
}

TEST_CASE("groups that share batch norm's statistics divide the ranks, whose weights are equal",
          "[config]") {
  const auto with = [](const std::string& more, int ranks) {
    Config config = parsed(more + "\n[model-options]\nnorm-ranks = 4\n");
    resolve(config, ranks);
  };
  CHECK_NOTHROW(with("", 4));
  CHECK_NOTHROW(with("", 12));
  for (const int ranks : {1, 2, 6})
    CHECK_THROWS_WITH(with("", ranks), Contains("model-options.norm-ranks = 4 does not divide the "
                                                "number of ranks, " +
                                                std::to_string(ranks)));
  CHECK_THROWS_WITH(with("sync.every = 4", 4), Contains("norm-ranks = 4 and sync.every = 4"));
  CHECK_THROWS_WITH(with("sync.gossip = true", 4),
                    Contains("norm-ranks = 4 and sync.gossip = true"));
  CHECK_THROWS_WITH(with("freeze = \"backbone\"", 4),
                    Contains("freeze is 'backbone'; no batch norm"));
  CHECK_NOTHROW(with("freeze = \"layer1\"", 4));
  Config before, now;
  now.model_options.norm_ranks = 2;
  CHECK(differences(before, now) ==
        std::vector<std::string>{"model-options.norm-ranks (1, now 2)"});
}

TEST_CASE("the linear scaling rule multiplies the learning rate once", "[config]") {
  Config config = parsed("batch = 1024\n[optim]\nlr = 0.1\nlr-for-batch = 256\n");
  resolve(config, 2);
  CHECK(config.optim.lr == Approx(0.4));
  resolve(config, 2);
  CHECK(config.optim.lr == Approx(0.4));
}

TEST_CASE("only keys that change results count as differences", "[config]") {
  Config before, now;
  now.out = "elsewhere";
  now.checkpoint.every_steps = 7;
  CHECK(differences(before, now).empty());
  now.optim.lr = 0.5f;
  CHECK(differences(before, now) == std::vector<std::string>{"optim.lr (0.1, now 0.5)"});
}
