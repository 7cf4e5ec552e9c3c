#include <catch2/catch.hpp>
#include <cmath>

#include <map>
#include <sstream>
#include <string>

#include "observe/live/prometheus.hpp"

using namespace lockstep::observe;
using Catch::Matchers::Contains;

namespace {

StartRecord start_of(const std::string& model) {
  StartRecord start;
  start.run_id = "0123456789abcdef";
  start.model = model;
  start.ranks = 4;
  start.time_ms = 1'700'000'000'500;
  return start;
}

StepRecord step_of(std::uint64_t number) {
  StepRecord step;
  step.step = number;
  step.epoch = 1;
  step.loss = 2.5;
  step.samples = number * 64;
  step.times = {.data_ms = 1, .forward_ms = 2, .backward_ms = 4, .exposed_comm_ms = 0.5};
  step.time_ms = 1'700'000'001'000 + number;
  return step;
}

bool has(const PrometheusText& metrics, const std::string& line) {
  std::istringstream lines(metrics.text());
  for (std::string one; std::getline(lines, one);)
    if (one == line) return true;
  return false;
}

const std::string run = R"({run_id="0123456789abcdef"})";

}  // namespace

TEST_CASE("Prometheus sees nothing before the start, and then the newest record of each kind",
          "[prometheus]") {
  PrometheusText metrics;
  CHECK(metrics.text().empty());
  metrics.write(start_of("resnet20"));
  CHECK(has(metrics, "lockstep_ranks" + run + " 4"));
  CHECK(has(metrics, "lockstep_start_timestamp_seconds" + run + " 1700000000.5"));
  CHECK_THAT(metrics.text(), !Contains("lockstep_loss"));
  for (std::uint64_t i = 11; i <= 13; ++i) metrics.write(step_of(i));
  CHECK(has(metrics, "lockstep_steps_total" + run + " 13"));
  CHECK(has(metrics, "lockstep_images_total" + run + " 832"));
  CHECK(has(metrics, "lockstep_loss" + run + " 2.5"));
  CHECK(has(metrics, "lockstep_top1_ratio" + run + " NaN"));
  CHECK_THAT(metrics.text(), !Contains("lockstep_validation_loss"));
  EpochRecord epoch;
  epoch.validation = Validation{0.25, 0.5, 0.75};
  epoch.bad_rows = {"a", "b"};
  metrics.write(epoch);
  metrics.write(epoch);
  CHECK(has(metrics, "lockstep_validation_top5_ratio" + run + " 0.75"));
  CHECK(has(metrics, "lockstep_bad_rows_total" + run + " 4"));
}

TEST_CASE("scores of labels and values are gauges of their names, and there is no top-1",
          "[prometheus]") {
  PrometheusText metrics;
  metrics.write(start_of("resnet20"));
  StepRecord step = step_of(1);
  step.scores = {{"F1", 0.5}};
  metrics.write(step);
  EpochRecord epoch;
  epoch.validation = Validation{
      .loss = 1, .top1 = NAN, .top5 = NAN, .scores = {{"mAP", 0.25}, {"micro-F1", 0.75}}};
  metrics.write(epoch);
  CHECK(has(metrics, "lockstep_F1" + run + " 0.5"));
  CHECK(has(metrics, "lockstep_validation_mAP" + run + " 0.25"));
  CHECK(has(metrics, "lockstep_validation_micro_F1" + run + " 0.75"));
  CHECK_THAT(metrics.text(), !Contains("lockstep_top1_ratio") && !Contains("validation_top1"));
}

TEST_CASE("times of steps are added up by their parts, in seconds", "[prometheus]") {
  PrometheusText metrics;
  metrics.write(start_of("resnet20"));
  for (std::uint64_t i = 1; i <= 1000; ++i) metrics.write(step_of(i));
  const auto part = [](const std::string& name) {
    return R"(lockstep_step_part_seconds_total{run_id="0123456789abcdef",part=")" + name + "\"} ";
  };
  CHECK(has(metrics, part("data") + "1"));
  CHECK(has(metrics, part("backward") + "4"));
  CHECK(has(metrics, part("exposed_comm") + "0.5"));
  CHECK(has(metrics, part("update") + "0"));
}

TEST_CASE("what a start used is added up, and energy that was not measured has no sample",
          "[prometheus]") {
  PrometheusText metrics;
  metrics.write(start_of("resnet20"));
  LedgerRecord used{
      .epoch = 1, .seconds = 1800, .cores = 4, .gpus = 2, .cost = std::nullopt, .energy = {}};
  used.energy = {{.source = "RAPL", .counts = "x"}, {.source = "NVML", .counts = "y"}};
  used.energy[0].joules = 2.5;
  metrics.write(used);
  metrics.write(used);
  const std::string run = R"({run_id="0123456789abcdef")";
  CHECK(has(metrics, "lockstep_core_hours_total" + run + "} 4"));
  CHECK(has(metrics, "lockstep_gpu_hours_total" + run + "} 2"));
  CHECK(has(metrics, "lockstep_energy_joules_total" + run + R"(,source="RAPL"} 5)"));
  CHECK_THAT(metrics.text(), !Contains("NVML") && !Contains("cost_total"));
}

TEST_CASE("each metric has its help and type once, before its samples, and labels are escaped",
          "[prometheus]") {
  PrometheusText metrics;
  metrics.write(start_of("a\"b\\c\nd\xff"));
  metrics.write(step_of(1));
  RanksRecord ranks;
  ranks.data = spread({1, 3});
  metrics.write(ranks);
  metrics.write(CheckpointRecord{.step = 1, .bytes = 10});
  // Prometheus takes no page with a byte that is not UTF-8.
  CHECK_THAT(metrics.text(), Contains("model=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\""));
  CHECK_THAT(metrics.text(), Contains(R"(part="data",rank="1"} 0.003)"));
  std::istringstream lines(metrics.text());
  std::map<std::string, int> types;
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, name;
    if (line.starts_with("# ")) {
      words >> hash >> kind >> name;
      current = name;
      types[name] += kind == "TYPE";
    } else {
      CHECK(line.substr(0, line.find('{')) == current);
    }
  }
  CHECK(types.size() > 15);
  for (const auto& [name, count] : types) CHECK(count == 1);
  CHECK(metrics.text().back() == '\n');
}
