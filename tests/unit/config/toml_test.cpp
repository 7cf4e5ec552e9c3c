#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/keys.hpp"
#include "tests/unit/config/config_fixture.hpp"

using namespace lockstep;
using namespace lockstep::config;
using Catch::Contains;
using lockstep::test::parsed;
using lockstep::test::with_data;

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
  const Config inlined = parsed("optim = { lr = 5e-1, milestones = [] }\nnotify = '''a'b'''");
  CHECK(inlined.optim.lr == 0.5f);
  CHECK(inlined.notify == "a'b");
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

TEST_CASE("a list of texts keeps them apart, and a mixed list is something else", "[config]") {
  const auto entries = read_toml("a = [\"x, y\", \"ü\"]\nb = [\"x\", 1]\nc = []\nd = [1, 2]", "f");
  CHECK((entries[0].kind == TomlKind::texts && entries[0].value == "x, y\nü"));
  CHECK((entries[1].kind == TomlKind::other && entries[1].value.empty()));
  CHECK((entries[2].kind == TomlKind::list && entries[2].value.empty()));
  CHECK((entries[3].kind == TomlKind::list && entries[3].value == "1,2"));
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
      {"bs", "did you mean 'batch'?"},
      {"amp", "did you mean 'precision'?"},
      {"data.lr", "did you mean 'optim.lr'?"},
      {"momentm", "did you mean 'optim.momentum'?"},
      {"optim.lrr", "did you mean 'optim.lr'?"},
      {"data.Val_Images", "did you mean 'data.val-images'?"},
      {"learning-rate", "did you mean 'optim.lr'?"},
      {"batch_size", "did you mean 'batch'?"},
      {"batchsize", "did you mean 'batch'?"},
      {"pretrained", "did you mean 'init'?"},
      {"weights", "did you mean 'init'?"},
      {"dataset", "did you mean 'data.train'?"},
      {"num-epochs", "did you mean 'epochs'?"},
      {"save-dir", "did you mean 'out'?"},
      {"recipe", "an option of 'lockstep train'"},
      {"dry-run", "an option of 'lockstep train'"},
      {"every-epochs", "did you mean 'eval.every-epochs' or 'checkpoint.every-epochs'?"},
      {"data", "is a section, with keys such as 'data.train'"},
      {"xyzzy", "'lockstep train --help' lists all keys"}};
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
