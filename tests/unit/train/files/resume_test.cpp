#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "train/files/resume.hpp"

using namespace lockstep;
using namespace lockstep::config;
using namespace lockstep::train;
using Catch::Contains;

namespace {

Config some_config() {
  Config config;
  config.data.train = "shards";
  config.batch = 64;
  return config;
}

data::DataSetInfo some_data(std::size_t rows) {
  data::DataSetInfo info;
  info.rows = rows;
  info.height = info.width = 32;
  info.channels = 1;
  info.classes = {"cat", "dog"};
  info.mean = {0.5f};
  info.stddev = {0.25f};
  return info;
}

ResumePoint written_with(const Config& config, std::uint64_t batch) {
  ResumePoint point;
  point.checkpoint = "runs/x/checkpoints/step-00000007.h5";
  point.header.config = to_toml(config);
  point.header.backend = "cpu, 1 thread";
  point.header.build = "build";
  point.header.world = point.header.replicas = 2;
  point.header.input = some_data(1000);
  point.header.progress.batch = batch;
  return point;
}

std::string judged(const ResumePoint& point, const Config& now,
                   const ResumeConditions& conditions) {
  return join(judge_resume(point, now, conditions), ", ");
}

const ResumeConditions same_conditions{"cpu, 1 thread", "build", 2, 2, some_data(1000)};

}  // namespace

TEST_CASE("the same configuration and conditions resume without a warning", "[resume]") {
  Config now = some_config();
  now.out = "elsewhere";
  now.checkpoint.every_steps = 5;
  CHECK(judge_resume(written_with(some_config(), 7), now, same_conditions).empty());
}

TEST_CASE("a checkpoint that leaves engines and fused batch norms open was written with neither",
          "[resume]") {
  Config now = some_config();
  now.tune = now.fuse_norms = now.graph = Switch::off;
  CHECK(judged(written_with(some_config(), 7), now, same_conditions).empty());
  now.tune = Switch::on;
  CHECK(judged(written_with(some_config(), 7), now, same_conditions) == "tune (false, now true)");
  now.tune = Switch::off;
  now.graph = Switch::on;  // the same bits
  CHECK(judged(written_with(some_config(), 7), now, same_conditions).empty());
}

TEST_CASE("a checkpoint from before there were two levels was written by flat all-reduces",
          "[resume]") {
  ResumePoint point = written_with(some_config(), 7);
  std::string& text = point.header.config;
  const std::size_t at = text.find("all-reduce = ");
  REQUIRE(at != std::string::npos);
  text.erase(at, text.find('\n', at) + 1 - at);
  Config now = some_config();
  now.comm.all_reduce = AllReduceChoice::flat;
  CHECK(judge_resume(point, now, same_conditions).empty());
  now.comm.all_reduce = AllReduceChoice::two_level;
  CHECK(judged(point, now, same_conditions) == "comm.all-reduce (flat, now two-level)");
}

TEST_CASE("a resume with other bits names what differs", "[resume]") {
  Config now = some_config();
  now.optim.lr = 0.5f;
  const std::string warning = judged(written_with(some_config(), 7), now,
                                     {"cpu, 2 threads", "other", 4, 4, some_data(1000)});
  CHECK_THAT(warning, Contains("optim.lr (0.1, now 0.5)"));
  CHECK_THAT(warning, Contains("backend (cpu, 1 thread, now cpu, 2 threads)"));
  CHECK_THAT(warning, Contains("build (build, now other)"));
  CHECK_THAT(warning, Contains("ranks (2, now 4)"));
}

TEST_CASE("a checkpoint of another update rule is an error that names both and the way out",
          "[resume]") {
  const auto refused = [](const Config& before, const Config& now, const std::string& what) {
    CHECK_THROWS_WITH(judged(written_with(before, 0), now, same_conditions),
                      Contains("step-00000007.h5: its run had " + what) && Contains("--init"));
  };
  Config lars = some_config(), outside = some_config(), lamb = some_config();
  lars.optim.rule = outside.optim.rule = optim::Rule::lars;
  outside.optim.lars_momentum = optim::LarsMomentum::outside;
  lamb.optim.rule = optim::Rule::lamb;
  refused(some_config(), lars, "optim.rule = sgd, this one has lars");
  refused(lamb, some_config(), "optim.rule = lamb, this one has sgd");
  refused(lars, outside, "optim.lars-momentum = inside, this one has outside");
  CHECK(judge_resume(written_with(lamb, 7), lamb, same_conditions).empty());
}

TEST_CASE("a place in the middle of an epoch is an error where it would mean other rows",
          "[resume]") {
  const auto refused = [](const Config& now, const ResumeConditions& conditions,
                          const std::string& what) {
    CHECK_THROWS_WITH(judged(written_with(some_config(), 7), now, conditions),
                      Contains("step-00000007.h5") && Contains(what));
    CHECK_THAT(judged(written_with(some_config(), 0), now, conditions), Contains(what));
  };
  Config batch = some_config(), seed = some_config(), keep = some_config();
  batch.batch = 32;
  refused(batch, same_conditions, "batch");
  seed.seed = 2;
  refused(seed, same_conditions, "seed");
  keep.data.keep_last = true;
  refused(keep, same_conditions, "data.keep-last");
  refused(some_config(), {"cpu, 1 thread", "build", 2, 2, some_data(999)},
          "rows of the training set");
  Config shuffle = some_config();
  shuffle.data.shuffle = data::Shuffle::block;
  refused(shuffle, same_conditions, "data.shuffle");
}

TEST_CASE("an order of blocks resumes in an epoch only with the same number of ranks", "[resume]") {
  for (const data::Shuffle shuffle : {data::Shuffle::block, data::Shuffle::node}) {
    const std::string order = choice_name(shuffle);
    Config config = some_config();
    config.data.shuffle = shuffle;
    const ResumeConditions more{"cpu, 1 thread", "build", 4, 4, some_data(1000)};
    CHECK_THROWS_WITH(judged(written_with(config, 7), config, more),
                      Contains("data.shuffle = " + order + " and a batch for = 2 ranks"));
    CHECK_THAT(judged(written_with(config, 0), config, more), Contains("ranks (2, now 4)"));
    CHECK(judged(written_with(config, 7), config, same_conditions).empty());
    Config window = config;
    window.data.window = 5;
    CHECK_THROWS_WITH(judged(written_with(config, 7), window, same_conditions),
                      Contains("data.window = 16"));
  }
}

TEST_CASE("a checkpoint of other classes or another shape is an error, other means are named",
          "[resume]") {
  const auto judged_on = [](const data::DataSetInfo& data) {
    return judged(written_with(some_config(), 0), some_config(),
                  {"cpu, 1 thread", "build", 2, 2, data});
  };
  data::DataSetInfo other = some_data(1000);
  other.classes[1] = "horse";
  CHECK_THROWS_WITH(judged_on(other),
                    Contains("step-00000007.h5") && Contains("different classes"));
  other = some_data(1000);
  other.width = 28;
  CHECK_THROWS_WITH(judged_on(other), Contains("step-00000007.h5") && Contains("32 x 28"));
  other = some_data(1000);
  other.mean[0] = 0.75f;
  CHECK_THAT(judged_on(other), Contains("mean of the training set ([0.5], now [0.75])"));
  ResumePoint point = written_with(some_config(), 0);
  other = some_data(1000);
  other.rows_hash = 6;
  const auto judged_now = [&] {
    return judged(point, some_config(), {"cpu, 1 thread", "build", 2, 2, other});
  };
  CHECK(judged_now().empty());  // older checkpoints do not have it
  point.header.input.rows_hash = 5;
  CHECK_THAT(judged_now(), Contains("the training set, whose labels or images are others"));
  point.header.input.rows_hash = 6;
  CHECK(judged_now().empty());
}

TEST_CASE("stopping after a step that has passed is an error that names both steps", "[resume]") {
  ResumePoint point = written_with(some_config(), 0);
  point.header.progress.step = 3;
  Config now = some_config();
  for (const std::uint64_t step : {2, 3}) {
    now.stop_after = step;
    CHECK_THROWS_WITH(judge_resume(point, now, same_conditions),
                      Contains("stop-after = " + std::to_string(step)) &&
                          Contains("step-00000007.h5 resumes after step 3"));
  }
  now.stop_after = 4;
  CHECK(judge_resume(point, now, same_conditions).empty());
}

TEST_CASE("ranks on other nodes give other bits where sums or rows depend on their nodes",
          "[resume]") {
  Config two_level = some_config(), by_node = some_config(), flat = some_config();
  two_level.comm.all_reduce = AllReduceChoice::two_level;
  by_node.data.shuffle = data::Shuffle::node;
  flat.comm.all_reduce = AllReduceChoice::flat;
  ResumeConditions moved = same_conditions;
  moved.placement = "0;1";
  const auto from = [](const Config& config, std::uint64_t batch, const std::string& placement) {
    ResumePoint point = written_with(config, batch);
    point.header.placement = placement;
    return point;
  };
  const std::string changed = "the ranks of each node (0-1, now 0;1)";
  CHECK(judged(from(two_level, 7, "0-1"), two_level, moved) == changed);
  CHECK(judged(from(two_level, 7, "0;1"), two_level, moved).empty());
  CHECK(judged(from(two_level, 7, ""), two_level, moved).empty());  // of an older build
  CHECK(judged(from(flat, 7, "0-1"), flat, moved).empty());
  CHECK(judged(from(by_node, 0, "0-1"), by_node, moved) == changed);
  CHECK_THROWS_WITH(judged(from(by_node, 7, "0-1"), by_node, moved),
                    Contains("step-00000007.h5") &&
                        Contains("data.shuffle = node and the ranks of each node = '0-1'; now it "
                                 "is '0;1'"));
  Config groups = flat, of_ranks = flat;
  groups.sync.every = of_ranks.sync.every = 4;
  of_ranks.sync.group = SyncGroup::rank;
  CHECK(judged(from(groups, 7, "0-1"), groups, moved) == changed);
  CHECK(judged(from(groups, 7, "0;1"), groups, moved).empty());
  CHECK(judged(from(of_ranks, 7, "0-1"), of_ranks, moved).empty());
  moved.on_gpus = true;
  CHECK(judged(from(flat, 7, "0-1"), flat, moved) == changed);
  moved.placement = std::string(100, '1');
  CHECK(judged(from(flat, 7, "0-1"), flat, moved) == "the ranks of each node");
}

TEST_CASE("a resume with weights to begin with is an error that names the checkpoint", "[resume]") {
  const auto refused = [](const Config& now, const std::string& what) {
    CHECK_THROWS_WITH(
        judged(written_with(some_config(), 0), now, same_conditions),
        Contains(what) && Contains("no effect on a resume") && Contains("step-00000007.h5"));
  };
  Config init = some_config();
  init.init = "nosuch.pth";
  refused(init, "init = 'nosuch.pth'");
  // The same command again, which a scheduler gives, is no error.
  CHECK(judged(written_with(init, 0), init, same_conditions).empty());
  CHECK_THROWS_WITH(judged(written_with(init, 0), some_config(), same_conditions),
                    Contains("began with init = 'nosuch.pth'"));
  Config zero = some_config();
  zero.model_options.zero_init_residual = true;
  refused(zero, "model-options.zero-init-residual");
}

TEST_CASE("a learning rate that jumps at a resume is said with both rates, whatever changed it",
          "[resume]") {
  Config before = some_config();
  before.epochs = 3;
  ResumePoint point = written_with(before, 0);
  point.header.progress.epoch = 3;
  const std::uint64_t steps = 1000 / 64;
  const auto said = [&](const auto& change) {
    Config now = before;
    change(now);
    return say_rate_jump(point, now, 1000 / now.batch);
  };
  CHECK(said([](Config&) {}).empty());
  // Of 45 steps the last has 0.05 (1 - cos(pi / 45)).
  CHECK_THAT(said([](Config& now) { now.epochs = 6; }),
             Contains("goes from 0.000122 to 0.05") && Contains("cosine now ends with epoch 6, "
                                                                "not 3"));
  point.header.progress.epoch = 1;
  CHECK_THAT(said([](Config& now) { now.optim.lr = 0.2f; }), Contains("goes from 0.0"));
  CHECK_THAT(said([](Config& now) { now.optim.decay = optim::Decay::constant; }),
             Contains("to 0.1: without the changes it would be 0.075"));
  CHECK_THAT(said([](Config& now) { now.optim.warmup_epochs = 2; }), Contains("goes from 0.0"));
  CHECK(said([](Config& now) { now.batch = 128; }).empty());
  CHECK(say_rate_jump(point, before, steps).empty());
  // A milestone is no change.
  before.optim.decay = optim::Decay::step;
  before.optim.milestones = {1};
  point.header.config = to_toml(before);
  CHECK(say_rate_jump(point, before, steps).empty());
}

TEST_CASE("a checkpoint without a word about elements is of a run on uint8", "[train][resume]") {
  ResumePoint point;
  CHECK(written_config(point).data.element == config::ElementChoice::u8);
  CHECK(written_config(point).data.task == config::TaskChoice::classes);
  point.header.config = "[data]\nelement = \"float32\"\ntask = \"values\"\n";
  CHECK(written_config(point).data.task == config::TaskChoice::values);
  CHECK(written_config(point).data.element == config::ElementChoice::f32);
}
