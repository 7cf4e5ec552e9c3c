#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/study/doctor/diagnosis.hpp"
#include "lockstep/study/fit/interval.hpp"
#include "study/doctor/machine_state.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using Catch::Matchers::Contains;
using lockstep::test::Folder;

namespace {

SlowCause found(SlowReason reason, Interval cost) {
  return {.reason = reason, .what = "x", .cost = cost, .not_measured = {}, .change = "--key 2"};
}

SlowCause unmeasured(SlowReason reason) {
  return {.reason = reason,
          .what = "y",
          .cost = std::nullopt,
          .not_measured = "there is one rank",
          .change = {}};
}

/// 100 ms a step.
Diagnosis diagnosis(std::vector<SlowCause> findings) {
  Diagnosis all;
  all.source = "measured";
  all.step_ms = 100;
  all.batch = 50;
  all.steps_per_epoch = 36000;
  all.devices = 2;
  all.findings = std::move(findings);
  rank_findings(all);
  return all;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

std::string stat_line(int process, const std::string& name, int ticks, int cpu) {
  std::string line = std::to_string(process) + " (" + name + ") R";
  for (int field = 4; field <= 52; ++field)
    line += " " + std::to_string(field == 14 ? ticks : field == 39 ? cpu : 0);
  return line + "\n";
}

observe::RanksRecord ranks(double data_ms, double slow_ms) {
  return observe::ranks_record(
      {{.data_ms = data_ms, .forward_ms = 10, .backward_ms = 20, .exposed_comm_ms = slow_ms},
       {.data_ms = 1, .forward_ms = 10 + slow_ms, .backward_ms = 20, .exposed_comm_ms = 2}},
      1);
}

void write_run(const std::filesystem::path& run, const std::vector<observe::Record>& records) {
  std::string text;
  for (const observe::Record& record : records) text += to_json(record) + "\n";
  write(run / "metrics.jsonl", text);
}

}  // namespace

TEST_CASE("an estimate is the median, and one outlier does not move it", "[doctor]") {
  const Interval same = estimate_difference({3, 3, 3, 3});
  CHECK(same.middle == 3);
  CHECK(same.low == 3);
  CHECK(same.high == 3);
  const Interval some = estimate_difference({1, 2, 3, 4, 1000});
  CHECK(some.middle == 3);
  CHECK(some.low >= 1);
  CHECK(some.low < 3);
  CHECK(some.high > 3);
  CHECK(estimate_difference({1, 2}).middle == 1.5);
  CHECK(is_precise({2.5, 3, 3.5}, 50));
  CHECK_FALSE(is_precise({2.5, 3, 3.6}, 50));
}

TEST_CASE("an interval gets narrower with more blocks of the same spread", "[doctor]") {
  std::vector<double> few, many;
  for (int i = 0; i < 8; ++i) few.push_back(i % 4);
  for (int i = 0; i < 128; ++i) many.push_back(i % 4);
  const Interval of_few = estimate_difference(few), of_many = estimate_difference(many);
  CHECK(of_many.high - of_many.low < of_few.high - of_few.low);
}

TEST_CASE("arms take turns, and take turns at beginning", "[doctor]") {
  std::vector<std::size_t> order;
  take_turns(
      3, [](std::size_t rounds) { return rounds < 2; },
      [&](std::size_t arm) { order.push_back(arm); });
  CHECK(order == std::vector<std::size_t>{0, 1, 2, 2, 1, 0});
}

TEST_CASE("costs are ranked, and what was not measured is last and never a number", "[doctor]") {
  const Diagnosis all = diagnosis(
      {unmeasured(SlowReason::communication), found(SlowReason::input, {3, 4, 5}),
       found(SlowReason::monitoring, {1, 1, 1}), found(SlowReason::parallel_work, {19, 20, 21})});
  const auto rows = table_of(all);
  REQUIRE(rows.size() == 5);
  CHECK(rows[1][0] == "parallel work");
  CHECK(rows[1][1] == "20.00 (19.00 to 21.00)");
  CHECK(rows[1][2] == "20.0 %");
  CHECK(rows[1][3] == "0.4");  // 20 ms, 36000 steps, 2 cores
  CHECK(rows[2][0] == "input pipeline");
  CHECK(rows[3][0] == "validation, checkpoints");
  CHECK(rows[4][0] == "communication");
  CHECK(rows[4][1] == "not measured");
  CHECK_THAT(rows[4][6], Contains("there is one rank"));
  CHECK_THAT(to_json(all), Contains("\"not_measured\": \"there is one rank\""));
  CHECK_THAT(conclusion_of(all), Contains("first: parallel work") && Contains("--key 2"));
}

TEST_CASE("what costs nothing has no advice, and a choice is told as one", "[doctor]") {
  SlowCause choice = found(SlowReason::precision, {29, 30, 31});
  choice.choice = true;
  choice.effect = choice.cost;
  const Diagnosis all = diagnosis({found(SlowReason::parallel_work, {-2, -1.6, 1}), choice,
                                   found(SlowReason::input, {7, 8, 9})});
  CHECK(table_of(all)[2][5] == "-");
  CHECK(table_of(all)[1][5] == "--key 2");
  CHECK_THAT(conclusion_of(all), Contains("first: input pipeline") &&
                                     Contains("a choice, which also changes what is learned: "
                                              "--key 2: 30.00 ms a step less"));
}

TEST_CASE("below 3 % of a step, or within the noise, nothing is worth changing", "[doctor]") {
  SlowCause choice = found(SlowReason::precision, {29, 30, 31});
  choice.choice = true;
  const Diagnosis all = diagnosis({found(SlowReason::input, {2.8, 2.9, 3}),
                                   found(SlowReason::communication, {-1, 5, 9}), choice});
  CHECK_THAT(conclusion_of(all), Contains("nothing worth changing"));
  CHECK_THAT(to_json(all), !Contains("\"worth_changing\": true"));
  CHECK(all.findings.back().reason == SlowReason::precision);
}

TEST_CASE("the promised speed is that of the measured change, not of the cost", "[doctor]") {
  SlowCause input = found(SlowReason::input, {49, 50, 51});
  input.effect = Interval{19, 20, 21};
  CHECK_THAT(conclusion_of(diagnosis({input})), Contains("625.0 images/s instead of 500.0"));
  Diagnosis all = diagnosis({input});
  all.floor = Interval{39, 40, 41};
  CHECK_THAT(conclusion_of(all), Contains("40.00 (39.00 to 41.00)") && Contains("need not add up"));
}

TEST_CASE("only foreign processes on the rank's own cores count", "[doctor]") {
  const Folder folder;
  const std::filesystem::path root = folder.path;
  const auto look = [&](int ticks) {
    write(root / "proc/7/stat", stat_line(7, "ours", ticks, 1));
    write(root / "proc/8/stat", stat_line(8, "make (x) all", ticks, 1));
    write(root / "proc/9/stat", stat_line(9, "elsewhere", 10 * ticks, 0));
    write(root / "proc/stat", "cpu 1 1 1 1 1 1 1 999\ncpu0 0 0 0 0 0 0 0 900\ncpu1 0 0 0 0 0 0 0 " +
                                  std::to_string(ticks) + " 0\n");
    write(root / "proc/self/task/7/schedstat",
          std::to_string(ticks / 4) + "000000000 " + std::to_string(ticks) + "000000000 1\n");
    return look_at_machine({1}, {7}, root);
  };
  const MachineState before = look(100);
  const Disturbance seen = between(before, look(300));
  CHECK(seen.others_s == Approx(2));
  CHECK(seen.busiest == "make (x) all (8)");
  CHECK(seen.steal_s == Approx(2));
  CHECK(seen.ran_s == Approx(50));
  CHECK(seen.delay_s == Approx(200));
  CHECK(seen.throttled_s < 0);  // not counted here
}

TEST_CASE("a quota of this group or of a parent is seen, in both versions", "[doctor]") {
  const Folder folder;
  const std::filesystem::path root = folder.path;
  const std::string version = GENERATE(as<std::string>{}, "0::/job/task", "3:cpu:/job/task");
  const std::string top = version.starts_with("0") ? "sys/fs/cgroup" : "sys/fs/cgroup/cpu";
  const auto look = [&](const std::string& amount) {
    write(root / "proc/self/cgroup", version + "\n");
    write(root / top / "job/task/cpu.stat", "nr_throttled 0\n");
    const bool second = version.starts_with("0");
    write(root / top / "job/cpu.stat",
          (second ? "throttled_usec 1" : "throttled_time 1") + amount + (second ? "\n" : "000\n"));
    return look_at_machine({0}, {}, root);
  };
  const MachineState before = look("000000");
  CHECK(before.throttled_s == Approx(1));
  CHECK(between(before, look("500000")).throttled_s == Approx(0.5));
}

namespace {

Diagnosis of_records(const std::filesystem::path& run) {
  return diagnose_records(run, read_newest_start(run));
}

}  // namespace

TEST_CASE("a run's records name what they show, and do not guess the rest", "[doctor]") {
  const Folder folder;
  observe::StartRecord start;
  start.ranks = 2;
  start.batch = 64;
  start.steps_per_epoch = 100;
  observe::EpochRecord epoch;
  epoch.validation_ms = 6;
  observe::CheckpointRecord saved;
  saved.blocked_ms = 3;
  write_run(folder.path, {start, ranks(15, 0), ranks(25, 0), ranks(20, 0), epoch, saved});
  const Diagnosis slow_data = of_records(folder.path);
  CHECK(slow_data.findings.front().reason == SlowReason::input);
  CHECK(slow_data.findings.front().cost->middle == Approx(20));
  CHECK(slow_data.findings.front().cost->low == Approx(15));
  CHECK(slow_data.findings.front().cost->high == Approx(25));
  for (const SlowCause& finding : slow_data.findings)
    if (finding.reason == SlowReason::monitoring) CHECK(finding.cost->middle == Approx(3));
  CHECK_FALSE(slow_data.findings.back().cost.has_value());

  write_run(folder.path, {start, ranks(15, 0), start, ranks(0, 30)});
  const Diagnosis slow_rank = of_records(folder.path);
  CHECK(slow_rank.findings.front().cost->middle == Approx(31));
  CHECK_THAT(slow_rank.findings.front().what, Contains("rank 1 in forward"));
}

TEST_CASE("a run's hours are those of its GPUs, else of its cores, however many its ranks",
          "[doctor]") {
  const Folder folder;
  observe::StartRecord start;
  start.ranks = 2;
  start.batch = 64;
  start.steps_per_epoch = 36000;
  const auto hours = [&](std::uint64_t cores, std::uint64_t gpus) {
    start.cores = cores;
    start.gpus = gpus;
    write_run(folder.path, {start, ranks(100, 0)});
    const auto rows = table_of(of_records(folder.path));
    return rows[0][3] + ": " + rows[1][3];
  };
  CHECK(hours(64, 0) == "core-hours an epoch: 64");
  CHECK(hours(64, 2) == "GPU-hours an epoch: 2");
  CHECK(hours(0, 0) == "core-hours an epoch: unknown");
}

TEST_CASE("records of ranks that share batch norm's statistics do not say where these wait",
          "[doctor]") {
  const Folder folder;
  observe::StartRecord start;
  start.ranks = 2;
  start.batch = 64;
  start.steps_per_epoch = 100;
  write_run(folder.path, {start, ranks(0, 30)});
  const auto waits = [&](const std::string& toml) {
    write(folder.path / "config.toml", toml);
    std::vector<SlowCause> found;
    for (const SlowCause& finding : of_records(folder.path).findings)
      if (finding.reason == SlowReason::communication && !finding.cost) found.push_back(finding);
    return found;
  };
  CHECK(waits("").empty());
  const auto found = waits("[model-options]\nnorm-ranks = 2\n");
  REQUIRE(found.size() == 2);
  CHECK(found[0].what == "waiting for a slow rank");
  CHECK(found[1].what == "batch norm's statistics of 2 ranks");
  for (const SlowCause& one : found)
    CHECK_THAT(one.not_measured, Contains("inside of forward and backward"));
}

TEST_CASE("a folder without an epoch's records is an error that names it", "[doctor]") {
  const Folder folder;
  CHECK_THROWS_WITH(read_newest_start(folder.path),
                    Contains(folder.path.string()) && Contains("not a run's folder"));
  write_run(folder.path, {observe::StartRecord{}});
  CHECK_THROWS_WITH(read_newest_start(folder.path), Contains("has not recorded"));
}
