#include <cmath>

#include <fmt/core.h>
#include <catch2/catch.hpp>

#include "config/key_rules.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/keys.hpp"

using namespace lockstep;
using namespace lockstep::config;
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

TEST_CASE("TOML's whole language is read", "[config]") {
  const Config config = parsed(
      "\xEF\xBB\xBF\"epochs\" = 1_0\nseed = +7\nbatch = 0x100\n[ 'optim' ]\r\nlr = +0.1\r\n"
      "milestones = [  # epochs\r\n  3_0,\n\n  # later\n  60,\n]  # all\n\"decay\" = 'step'\n"
      "[\"data\"]\ntrain = \"\\u00e4\\U0001F600\\n\"\nflip = true# at once\n"
      "val = \"\"\"\none,\\\n   line\"\"\"\n[eval]\n[checkpoint]\nkeep = 0o7");
  CHECK(config.epochs == 10);
  CHECK(config.seed == 7);
  CHECK(config.batch == 256);
  CHECK(config.optim.lr == 0.1f);
  CHECK(config.optim.milestones == std::vector<std::uint64_t>{30, 60});
  CHECK(config.optim.decay == lockstep::optim::Decay::step);
  CHECK(config.data.train == "ä😀\n");
  CHECK(config.data.val == "one,line");
  CHECK(config.data.flip);
  CHECK(config.checkpoint.keep == 7);
  const Config inlined = parsed("optim = { lr = 5e-1, milestones = [] }\nmodel = '''a'b'''");
  CHECK(inlined.optim.lr == 0.5f);
  CHECK(inlined.model == "a'b");
}

TEST_CASE("a saved configuration reads back whatever numbers and bytes are in it", "[config]") {
  // TOML's limits are 2^63 - 1 and UTF-8; earlier runs saved more.
  const Config config = parsed(
      "seed = 18446744073709551615\nbatch = 9223372036854775808 # a comment\n[data]\n"
      "train = \"latin-1 \xE4, torn \xE2\x82\"\n"
      "[optim]\nlr = 1e-05\nmilestones = [1,18446744073709551615, 9223372036854775807]\n");
  CHECK(config.seed == 18446744073709551615u);
  CHECK(config.batch == 9223372036854775808u);
  CHECK(config.optim.lr == 1e-05f);
  CHECK(config.optim.milestones ==
        std::vector<std::uint64_t>{1, 18446744073709551615u, 9223372036854775807u});
  CHECK(config.data.train == "latin-1 \xE4, torn \xE2\x82");
  Config odd;
  odd.out = "\x80 \xE4\xC0\xAF \xED\xA0\x80 \xF4\x8F\xBE\x80 \xF4\x90\x80\x80 \xFF\xFE";
  CHECK(parsed(to_toml(odd)).out == odd.out);
}

TEST_CASE("text that is not TOML is an error with its file, line and text", "[config]") {
  CHECK_THROWS_WITH(parsed("seed = 1\n[[optim]]\nlr = 1"),
                    Contains("run.toml, line 2: unknown key 'optim'"));
  CHECK_THROWS_WITH(parsed("[optim]\nlr = 1\n[data]\n[optim]\n"),
                    Contains("line 4: '[optim]'") && Contains("cannot redefine"));
  CHECK_THROWS_WITH(parsed("[}"), Contains("line 1: a key was expected"));
  CHECK_THROWS_WITH(parsed("seed = 1\n\n[optim]\n  [ = ]\nlr = 1\n"),
                    Contains("line 4: a key was expected"));
  CHECK_THROWS_WITH(parsed("data.pad = 1\n[data]\n"), Contains("line 2: '[data]'"));
  CHECK_THROWS_WITH(parsed("[optim]\nmilestones = [\n3,\n"),
                    Contains("line 3: '3,'") && Contains("array"));
  CHECK_THROWS_WITH(parsed("optim.milestones = [1\n\n2]"), Contains("line 3") && Contains("comma"));
  CHECK_THROWS_WITH(parsed("optim.milestones = [[1], 2]"), Contains("milestones takes a list"));
  CHECK_THROWS_WITH(parsed("optim.milestones = [\"1\"]"), Contains("milestones takes a list"));
  CHECK_THROWS_WITH(parsed("optim.milestones = [1.5]"),
                    Contains("milestones: '1.5' is not a whole"));
  CHECK_THROWS_WITH(parsed("optim.milestones = [,]"), Contains("saw comma"));
  for (const char* number : {"1_", "-_1", "1__0", "1_x", "1_.5", "01", "0x1_"})
    CHECK_THROWS_WITH(parsed(std::string("optim.lr = ") + number),
                      Contains(std::string("line 1: 'optim.lr = ") + number + "'"));
  for (const char* number : {"18446744073709551616", "-18446744073709551615", "0xFFFFFFFFFFFFFFFF"})
    CHECK_THROWS_WITH(parsed(std::string("seed = ") + number),
                      Contains(number) && Contains("not representable"));
  CHECK_THROWS_WITH(parsed("seed = \"18446744073709551615\""), Contains("takes a number"));
  CHECK_THROWS_WITH(parsed("out = \"\\q\""), Contains("escape sequence '\\q'"));
  CHECK_THROWS_WITH(parsed("out = \"\\u12\""), Contains("hex digit"));
  CHECK_THROWS_WITH(parsed("out = \"\\ud800\""), Contains("surrogates"));
  CHECK_THROWS_WITH(parsed("out = \"\\u0000\""),
                    Contains("line 1: out") && Contains("character 0"));
  CHECK_THROWS_WITH(parsed("out = \"a\\"), Contains("string"));
  CHECK_THROWS_WITH(parsed("\"epochs = 3"), Contains("string") && Contains("end-of-file"));
  CHECK_THROWS_WITH(parsed("\xEF\xBB\xBF\nseed = 1\xEF\xBB\xBF"), Contains("line 2"));
  CHECK_THROWS_WITH(parsed("epochs = 1979-05-27"), Contains("epochs takes a number"));
  CHECK_THROWS_WITH(parsed("optim = 1979-05-27"), Contains("unknown key 'optim'"));
  CHECK_THROWS_WITH(parsed("epochs = {}"), Contains("epochs takes a number"));
  CHECK_THROWS_WITH(parsed("[optm]"), Contains("unknown key 'optm'"));
  CHECK_THROWS_WITH(parsed("\"optim.lr\" = 1\noptim.lr = 2"),
                    Contains("line 2: 'optim.lr' is already in line 1"));
}

TEST_CASE("a text that nests without end is an error", "[config]") {
  const auto many = [](std::string_view piece, std::size_t times) {
    std::string all;
    while (times-- > 0) all += piece;
    return all;
  };
  CHECK_THROWS_WITH(parsed("\n" + many("a.", 500'000) + "a = 1"),
                    Contains("line 2: more than 256 dots"));
  CHECK_THROWS_WITH(parsed("a = " + many("[", 500'000)), Contains("line 1") && Contains("depth"));
  CHECK_THROWS_WITH(parsed("a = " + many("{a=", 500'000)), Contains("line 1") && Contains("depth"));
  // The deepest possible: a header, a key, and a key in each table of a list.
  const std::string deep = many("a.", 255) + "a";
  CHECK_THROWS_WITH(parsed('[' + deep + "]\n" + deep + " = [\n" + many('{' + deep + " = [\n", 3) +
                           "1" + many("]}", 3) + "]"),
                    Contains("line 2: unknown key"));
}

TEST_CASE("an unknown key is an error that names file, line, key and its likely meaning",
          "[config]") {
  CHECK_THROWS_WITH(parsed("[optim]\nlearnrate = 1\n"),
                    Contains("run.toml, line 2") && Contains("optim.learnrate"));
  CHECK_THROWS_WITH(parsed("epoch = 3"), Contains("'epoch'") && Contains("'epochs'"));
  Config config;
  CHECK_THROWS_WITH(set_key(config, "optim.mometum", "0.9"), Contains("optim.momentum"));
}

TEST_CASE("the meaning of an unknown key is looked for in the last parts of keys, too",
          "[config]") {
  const std::pair<const char*, const char*> typed[] = {
      {"lr", "did you mean 'optim.lr'?"},
      {"train", "did you mean 'data.train'?"},
      {"data.lr", "did you mean 'optim.lr'?"},
      {"momentm", "did you mean 'optim.momentum'?"},
      {"optim.lrr", "did you mean 'optim.lr'?"},
      {"data.Val_Images", "did you mean 'data.val-images'?"},
      {"learning-rate", "did you mean 'optim.lr'?"},
      {"batch_size", "did you mean 'batch'?"},
      {"every-epochs", "did you mean 'eval.every-epochs' or 'checkpoint.every-epochs'?"},
      {"data", "is a section, with keys such as 'data.train'"},
      {"warp", "'lockstep train --help' lists all keys"}};
  Config config;
  for (const auto& [key, meant] : typed) {
    CAPTURE(key);
    CHECK_THROWS_WITH(set_key(config, key, "1"),
                      Contains("unknown key '" + std::string(key) + "'") && Contains(meant));
  }
}

TEST_CASE("junk in a configuration file is an error with its line", "[config]") {
  CHECK_THROWS_WITH(parsed("epochs = ten"),
                    Contains("run.toml, line 1: 'epochs = ten'") && Contains("quotes"));
  CHECK_THROWS_WITH(parsed("epochs = 1.5"), Contains("whole number"));
  CHECK_THROWS_WITH(parsed("epochs = -1"), Contains("whole number"));
  CHECK_THROWS_WITH(parsed("epochs = \"3\""), Contains("takes a number"));
  CHECK_THROWS_WITH(parsed("model = resnet20"), Contains("quotes"));
  CHECK_THROWS_WITH(parsed("model = 20"), Contains("quotes"));
  CHECK_THROWS_WITH(parsed("epochs = 3 4"), Contains("'epochs = 3 4'") && Contains("saw '4'"));
  CHECK_THROWS_WITH(parsed("epochs = 3\nepochs = 4"),
                    Contains("line 2: 'epochs = 4'") && Contains("cannot redefine"));
  CHECK_THROWS_WITH(parsed("\nepochs"), Contains("line 2: 'epochs'") && Contains("end-of-file"));
  CHECK_THROWS_WITH(parsed("epochs ="), Contains("line 1: 'epochs ='") && Contains("end-of-file"));
  CHECK_THROWS_WITH(parsed("model = \"resnet20"), Contains("string") && Contains("end-of-file"));
  CHECK_THROWS_WITH(parsed("[optim\nlr = 1"),
                    Contains("line 1: '[optim'") && Contains("expected ']'"));
  CHECK_THROWS_WITH(parsed("[nosuch]\n"), Contains("line 1: unknown key 'nosuch'"));
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

TEST_CASE("a global batch that ranks and micro-batches cannot share is an error", "[config]") {
  Config config = with_data();
  config.batch = 100;
  config.accumulate = 2;
  resolve(config, 3);  // 34, 33, 33
  CHECK(config.batch == 100);
  config.batch = 3;
  CHECK_THROWS_WITH(resolve(config, 2), Contains("batch = 3") && Contains("2 x 2 = 4"));
  config.batch = 100;
  config.graph = true;
  CHECK_NOTHROW(resolve(config, 2));
  CHECK_THROWS_WITH(resolve(config, 3), Contains("graph = true") && Contains("3 x 2 = 6"));
}

TEST_CASE("engines chosen by measuring and bits that must repeat contradict each other",
          "[config]") {
  Config config = with_data();
  config.tune = config.deterministic = true;
  CHECK_THROWS_WITH(resolve(config, 1), Contains("tune and deterministic contradict"));
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
  refused("data.train = \"\"", "data.train");
  refused("resume = \"auto\"", "--out");
}

TEST_CASE("the help of a key ends with its range or its choices", "[config]") {
  const auto help_ends = [](const char* name, const std::string& end) {
    const ConfigKey* key = find_key(name);
    REQUIRE(key != nullptr);
    CHECK_THAT(key->help, Catch::EndsWith(end));
  };
  help_ends("data.size", " [0 to 65535]");
  help_ends("optim.momentum", " [0 to 0.999999]");
  help_ends("optim.warmup-epochs", " [0 to epochs]");
  help_ends("data.mixup", " [0 or 0.01 to 100]");
  help_ends("checkpoint.keep", " [at least 1]");
  help_ends("precision", ": fp32, tf32, bf16, fp16");
  help_ends("data.range", ": auto, 0-1, 0-255, -1-1");
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
  refused("fuse-norms = true", "precision is 'fp32'; it has engines for fp16 only");
  refused("tune-cache = \"plans.txt\"", "tune is false; the file keeps what it measures");
  accepted("tune = true\ntune-cache = \"plans.txt\"");
  refused("memory-limit = 1000", "recompute is 'none'; 'auto' keeps the limit");
  accepted("recompute = \"auto\"\nmemory-limit = 1000");
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
