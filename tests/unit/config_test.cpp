#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/train/config.hpp"

using namespace lockstep;
using namespace lockstep::train;
using Catch::Contains;

namespace {

Config with_data() {
  Config config;
  config.data.train = "shards";
  return config;
}

Config parsed(const std::string& text) {
  Config config = with_data();
  apply_toml(config, text, "run.toml");
  return config;
}

}  // namespace

TEST_CASE("a configuration survives the way through its own text", "[config]") {
  Config config = with_data();
  config.optim.lr = 0.30000001f;
  config.optim.decay = "step";
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

TEST_CASE("sections, dotted keys and comments mean what TOML says", "[config]") {
  const Config config = parsed(
      "# a run\nmodel = \"resnet32\"  # deeper\ndata.pad = 4\r\n\n[optim]\nlr = 2.5e-1\n"
      "nesterov = true\nmilestones = [ 3,4 , 5 ]\n");
  CHECK(config.model == "resnet32");
  CHECK(config.data.pad == 4);
  CHECK(config.optim.lr == 0.25f);
  CHECK(config.optim.nesterov);
  CHECK(config.optim.milestones == std::vector<std::uint64_t>{3, 4, 5});
}

TEST_CASE("what TOML allows beside that is read: long lists, quoted keys, '_', '+' and a mark",
          "[config]") {
  const Config config = parsed(
      "\xEF\xBB\xBF\"epochs\" = 1_0\nseed = +7\n[ 'optim' ]\r\nlr = +0.1\r\n"
      "milestones = [  # epochs\r\n  3_0,\n\n  # later\n  60,\n]  # all\n\"decay\" = 'step'\n"
      "[\"data\"]\ntrain = \"\\u00e4\\U0001F600\\n\"\nflip = true# at once");
  CHECK(config.epochs == 10);
  CHECK(config.seed == 7);
  CHECK(config.optim.lr == 0.1f);
  CHECK(config.optim.milestones == std::vector<std::uint64_t>{30, 60});
  CHECK(config.optim.decay == "step");
  CHECK(config.data.train == "ä😀\n");
  CHECK(config.data.flip);
}

TEST_CASE("what this reader does not understand of TOML is refused by line and by name",
          "[config]") {
  CHECK_THROWS_WITH(parsed("seed = 1\noptim = { lr = 0.1 }"), Contains("run.toml, line 2") &&
                                                                  Contains("inline table") &&
                                                                  Contains("[optim]"));
  CHECK_THROWS_WITH(parsed("[[optim]]"), Contains("line 1") && Contains("arrays of tables"));
  CHECK_THROWS_WITH(parsed("out = \"\"\"a\nb\"\"\""), Contains("on one line"));
  CHECK_THROWS_WITH(parsed("[optim]\nlr = 1\n[data]\n[optim]\n"),
                    Contains("line 4: '[optim]' already stands in line 1"));
  CHECK_THROWS_WITH(parsed("[optim]\nmilestones = [\n3,\n"),
                    Contains("begins in line 2") && Contains("no ']'"));
  CHECK_THROWS_WITH(parsed("optim.milestones = [1\n\n2]"), Contains("line 3") && Contains("','"));
  CHECK_THROWS_WITH(parsed("optim.milestones = [[1], 2]"), Contains("numbers only"));
  CHECK_THROWS_WITH(parsed("optim.milestones = [\"1\"]"), Contains("numbers only"));
  CHECK_THROWS_WITH(parsed("optim.milestones = [,]"), Contains("'' is no value"));
  for (const char* number : {"1_", "-_1", "1__0", "1_x", "1_.5"})
    CHECK_THROWS_WITH(parsed(std::string("optim.lr = ") + number), Contains(number));
  CHECK_THROWS_WITH(parsed("out = \"\\q\""), Contains("backslash"));
  CHECK_THROWS_WITH(parsed("out = \"\\u12\""), Contains("4 hexadecimal digits"));
  CHECK_THROWS_WITH(parsed("out = \"\\ud800\""), Contains("no character"));
  CHECK_THROWS_WITH(parsed("out = \"\\u0000\""), Contains("no character"));
  CHECK_THROWS_WITH(parsed("out = \"a\\"), Contains("backslash"));
  CHECK_THROWS_WITH(parsed("\"epochs = 3"), Contains("no end"));
  CHECK_THROWS_WITH(parsed("\xEF\xBB\xBF\nseed = 1\xEF\xBB\xBF"), Contains("line 2"));
}

TEST_CASE("an unknown key is an error that names file, line, key and its likely meaning",
          "[config]") {
  CHECK_THROWS_WITH(parsed("[optim]\nlearnrate = 1\n"),
                    Contains("run.toml, line 2") && Contains("optim.learnrate"));
  CHECK_THROWS_WITH(parsed("epoch = 3"), Contains("'epoch'") && Contains("'epochs'"));
  Config config;
  CHECK_THROWS_WITH(set_key(config, "optim.mometum", "0.9"), Contains("optim.momentum"));
}

TEST_CASE("junk in a configuration file is refused with its line", "[config]") {
  CHECK_THROWS_WITH(parsed("epochs = ten"), Contains("line 1") && Contains("epochs"));
  CHECK_THROWS_WITH(parsed("epochs = 1.5"), Contains("whole number"));
  CHECK_THROWS_WITH(parsed("epochs = -1"), Contains("whole number"));
  CHECK_THROWS_WITH(parsed("epochs = \"3\""), Contains("takes a number"));
  CHECK_THROWS_WITH(parsed("model = resnet20"), Contains("quotes"));
  CHECK_THROWS_WITH(parsed("model = 20"), Contains("quotes"));
  CHECK_THROWS_WITH(parsed("epochs = 3 4"), Contains("behind the value"));
  CHECK_THROWS_WITH(parsed("epochs = 3\nepochs = 4"), Contains("already stands in line 1"));
  CHECK_THROWS_WITH(parsed("\nepochs"), Contains("line 2") && Contains("'='"));
  CHECK_THROWS_WITH(parsed("epochs ="), Contains("no value"));
  CHECK_THROWS_WITH(parsed("model = \"resnet20"), Contains("no end"));
  CHECK_THROWS_WITH(parsed("[optim\nlr = 1"), Contains("[name]"));
  CHECK_THROWS_WITH(parsed("data.flip = 1"), Contains("true or false"));
  CHECK_THROWS_WITH(parsed("optim.lr = nan"), Contains("optim.lr"));
  CHECK_THROWS_WITH(parsed("precision = \"fp8\""), Contains("fp8") && Contains("bf16"));
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

TEST_CASE("a global batch that ranks and micro-batches cannot share is refused", "[config]") {
  Config config = with_data();
  config.batch = 100;
  config.accumulate = 2;
  resolve(config, 3);  // 34, 33, 33
  CHECK(config.batch == 100);
  config.batch = 3;
  CHECK_THROWS_WITH(resolve(config, 2), Contains("batch = 3") && Contains("2 x 2 = 4"));
}

TEST_CASE("values out of range are refused by key", "[config]") {
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
  refused("optim.warmup-epochs = 9", "optim.warmup-epochs");
  refused("optim.decay = \"step\"", "optim.milestones");
  refused("batch = 18446744073709551615", "batch");
  refused("accumulate = 16777217", "accumulate");
  refused("data.train = \"\"", "data.train");
  refused("resume = \"auto\"", "--out");
}

TEST_CASE("a key that cannot have an effect is refused, and a resolved configuration reads back",
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
  refused("optim.warmup-start = 0.01", "optim.warmup-start");
  refused("[optim]\nmomentum = 0\nnesterov = true", "optim.nesterov");
  refused("[data]\ncrop = \"random\"\nmin-area = 0.5", "data.min-area");
  accepted("[optim]\ndecay = \"constant\"\nwarmup-epochs = 1\nwarmup-start = 0.01");
  accepted("[optim]\ndecay = \"step\"\nmilestones = [0, 8]\nfactor = 0.5");
  accepted("[optim]\ndecay = \"polynomial\"\npower = 1\nfinal-lr = 0.01");
  accepted("optim.final-lr = 0.01");
  accepted("optim.power = 2");  // as not given
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
