#include "lockstep/study/plan/study_plan.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/lint/lint.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/study/plan/run_study.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using namespace lockstep::test;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;

namespace {

PlanSpec a_plan() {
  return {.ranks = {4, 8, 16}, .ranks_per_node = 4, .batch = 512, .rows = 64, .repetitions = 2};
}

/// Another value than usual, in the form that set() takes; empty: the test knows none.
std::string other_value(const config::ConfigKey& key) {
  const std::string usual = key.get({});
  std::vector<std::string> values = key.choices;
  values.insert(values.end(), {"true", "false", "0.5", "0.25", "2", "3", "1:2", "x"});
  for (const std::string& value : values) try {
      config::Config config;
      key.set(config, value);
      if (key.get(config) != usual) return value;
    } catch (const InputError&) {
      continue;
    }
  return "";
}

/// What the command would train with.
config::Config config_of(const std::vector<std::string>& command) {
  config::Config config;
  for (std::size_t i = 0; i + 1 < command.size(); ++i) {
    if (command[i] == "--config")
      config::apply_toml(config, read_text(command[i + 1]), command[i + 1]);
    else if (command[i].starts_with("--") && config::find_key(command[i].substr(2)))
      config::set_key(config, command[i].substr(2), command[i + 1]);
  }
  return config;
}

/// Keys that a study sets itself: how many rows and steps, where files go, that nothing diverges,
/// and that what begins later in a training begins at once.
bool is_of_the_study(const std::string& name) {
  static const std::set<std::string> all = {"batch",
                                            "batch-per-rank",
                                            "epochs",
                                            "out",
                                            "resume",
                                            "stop-after",
                                            "stop-after-epoch",
                                            "data.val",
                                            "optim.lr",
                                            "optim.lr-for-batch",
                                            "optim.warmup-epochs",
                                            "sync.from-epoch",
                                            "comm.power-sgd-from-epoch",
                                            "checkpoint.every-epochs",
                                            "checkpoint.every-steps"};
  return all.contains(name);
}

}  // namespace

TEST_CASE("what a study measures has each key of its training", "[study]") {
  const Folder place("study");
  const PlanSpec plan = a_plan();
  for (const config::ConfigKey& key : config::config_keys()) {
    if (is_of_the_study(key.name)) continue;
    INFO(key.name);
    const std::string value = other_value(key);
    REQUIRE_FALSE(value.empty());
    config::Config training;
    key.set(training, value);
    const auto folder = place.path / key.name;
    write_plan(folder, plan, training);
    for (const bool synthetic : {true, false}) {
      const auto measured = [&](std::size_t ranks) {
        return key.get(config_of(command_of(folder, plan, {ranks, 512, 1, synthetic}, "x")));
      };
      CHECK(measured(8) == key.get(training));
      CHECK(measured(1) == key.get(key.between_ranks ? config::Config() : training));
    }
  }
}

TEST_CASE("a study has both series, and the rows of the strong one on the fewest ranks",
          "[study]") {
  const std::vector<Measurement> steps = measurements_of(a_plan());
  std::set<std::pair<std::size_t, std::size_t>> sizes;
  std::set<std::string> names;
  for (const Measurement& step : steps) {
    sizes.insert({step.ranks, step.batch});
    names.insert(step.name());
  }
  // Strong: batch 512. Weak: 64 rows. Alone: 4 ranks of 128, 64 and 32 rows.
  CHECK(sizes == std::set<std::pair<std::size_t, std::size_t>>{
                     {4, 512}, {8, 512}, {16, 512}, {4, 256}, {16, 1024}, {4, 128}});
  CHECK(configurations(steps) == 6);
  CHECK(steps.size() == 12);
  CHECK(names.size() == 12);
  CHECK((steps.front().repetition == 1 && steps.back().repetition == 2));
}

TEST_CASE("a plan comes back from its folder, and is never written over", "[study]") {
  const Folder place("study");
  const auto folder = place.path / "study";
  PlanSpec plan = a_plan();
  plan.time = "00:20:00";
  plan.real = plan.array = true;
  config::Config training;
  training.model = "resnet18";
  training.threads = 3;
  write_plan(folder, plan, training);
  const PlanSpec back = read_plan(folder);
  CHECK(back.ranks == plan.ranks);
  CHECK(back.time == plan.time);
  CHECK((back.real && back.array && back.batch == 512 && back.rows == 64));
  CHECK_THROWS_WITH(write_plan(folder, plan, training), Contains("exists already"));

  CHECK_THAT(join(command_of(folder, back, {8, 512, 1, true}, "x.json"), " "),
             StartsWith("bench train --config") && Contains("--batch 512 --steps 50 --warm-up 5") &&
                 EndsWith("--json x.json"));
  CHECK_THAT(join(command_of(folder, back, {8, 512, 1, false}, "x"), " "),
             StartsWith("train --config") && EndsWith("--batch 512 --out x"));
  config::Config each;
  config::apply_toml(each, read_text(folder / "train.toml"), "train.toml");
  CHECK((each.stop_after == 55 && each.model == "resnet18" && each.batch == 0));

  write_text_atomically(folder / "study.json", "{\"ranks\": \"4\"}");
  CHECK_THROWS_WITH(read_plan(folder), Contains("study.json: \"ranks\""));
}

TEST_CASE("a plan of an older program measures images of the size that it names", "[study]") {
  const Folder place("study");
  const auto folder = place.path / "study";
  write_plan(folder, a_plan(), {});
  std::string json = read_text(folder / "study.json");
  CHECK_THAT(json, !Contains("image") && !Contains("classes"));
  json.replace(json.find('{'), 1, "{\"image\": 8, \"classes\": 0,");
  write_text_atomically(folder / "study.json", json);
  const PlanSpec plan = read_plan(folder);
  CHECK_THAT(join(command_of(folder, plan, {8, 512, 1, true}, "x.json"), " "),
             Contains("--batch 512 --data.classes 0 --data.size 8 --steps 50"));
  CHECK_THAT(join(command_of(folder, plan, {8, 512, 1, false}, "x"), " "),
             !Contains("--data.size"));
}

TEST_CASE("a plan that was edited wrongly is an error that names the file and the key", "[study]") {
  const Folder place("study");
  const auto folder = place.path / "study";
  write_plan(folder, a_plan(), {});
  const std::string sound = read_text(folder / "study.json");
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string text = sound;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    write_text_atomically(folder / "study.json", text.replace(at, from.size(), to));
  };
  edited("\"steps\": 50", "\"steps\": -1");
  CHECK_THROWS_WITH(read_plan(folder), Contains("study.json: \"steps\" is not a whole number"));
  edited("\"steps\": 50", "\"steps\": 2.5");
  CHECK_THROWS_WITH(read_plan(folder), Contains("study.json: \"steps\" is not a whole number"));
  edited("\"ranks\": [", "\"ranks\": [-4,");
  CHECK_THROWS_WITH(read_plan(folder), Contains("study.json: \"ranks\" is not a whole number"));
  edited("\"time\": \"", "\"time\": \"1 hour\\n");
  CHECK_THROWS_WITH(read_plan(folder), Contains("study.json: --time") && Contains("D-HH:MM:SS"));
}

TEST_CASE("what goes into a batch script is one line, and a time that Slurm takes", "[study]") {
  const Folder place("study");
  PlanSpec plan = a_plan();
  for (const char* time : {"1 hour", "1:00:00\nrm -r /", "", "4h"}) {
    plan.time = time;
    CHECK_THROWS_WITH(write_plan(place.path / "bad", plan, {}), Contains("--time: "));
  }
  for (const char* time : {"90", "1:30:00", "1-12", "1-12:30:00"}) {
    plan.time = time;
    CHECK_NOTHROW(write_plan(place.path / time, plan, {}));
  }
  CHECK_THROWS_WITH(write_plan(place.path / "a\nrm -r b", plan, {}), Contains("no line break"));
  CHECK_FALSE(std::filesystem::exists(place.path / "bad"));
}

TEST_CASE("a study's batch script has no fault that lint knows", "[study]") {
  for (const bool array : {false, true})
    for (const std::size_t gpus : {0, 4}) {
      PlanSpec plan = a_plan();
      plan.array = array;
      plan.gpus_per_node = gpus;
      const std::string script = batch_script("studies/my 'study'", plan);
      for (const cluster::Finding& one : cluster::lint_batch_script(script)) FAIL(one.text);
      CHECK_THAT(script, Contains("scaling run 'studies/my '\\''study'\\'''"));
      CHECK_THAT(script, Contains("--nodes=4\n"));
    }
}

TEST_CASE("a plan without sense names what is wrong", "[study]") {
  PlanSpec plan = a_plan();
  plan.ranks = {8, 4};
  CHECK_THROWS_WITH(measurements_of(plan), Contains("the fewest first"));
  plan = a_plan();
  plan.batch = plan.rows = 0;
  CHECK_THROWS_WITH(measurements_of(plan), Contains("--batch-per-rank"));
  plan = a_plan();
  plan.ranks_per_node = 3;
  CHECK_THROWS_WITH(measurements_of(plan), Contains("do not fill nodes"));
  plan = a_plan();
  plan.synthetic = false;
  CHECK_THROWS_WITH(measurements_of(plan), Contains("nothing to measure"));
}
