#include "lockstep/study/what_if/what_if.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "lockstep/observe/records.hpp"
#include "lockstep/observe/trace/rank_trace.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using Catch::Matchers::Contains;
using lockstep::test::Folder;
using lockstep::test::write_file;
using observe::StepTimes;

namespace {

observe::StartRecord start_of(std::uint64_t ranks) {
  observe::StartRecord start;
  start.run_id = "0123456789abcdef";
  start.ranks = ranks;
  start.batch = 64;
  start.classes = 10;
  start.image = 32;
  start.steps_per_epoch = 100;
  start.time_ms = 1000;
  return start;
}

/// A run of ResNet-20 with one bucket; an entry of `epochs` has the means of its ranks.
struct Run {
  Folder folder{"what-if"};

  explicit Run(const std::vector<std::vector<StepTimes>>& epochs,
               const std::string& toml = "[comm]\nbucket-mb = 100\n") {
    std::string lines = to_json(start_of(epochs.front().size())) + "\n";
    for (const auto& ranks : epochs) lines += to_json(observe::ranks_record(ranks, 1)) + "\n";
    write_file(folder.path / "metrics.jsonl", lines);
    write_file(folder.path / "config.toml", toml);
  }
  WhatIf supposed() const { return suppose(folder.path, read_newest_start(folder.path)); }
};

const Supposition& find(const WhatIf& what_if, std::string_view what) {
  INFO(heading_of(what_if));
  for (const Supposition& one : what_if.all)
    if (one.what == what) return one;
  FAIL("nothing is supposed about " << what);
  throw 0;
}

double gain(const WhatIf& what_if, const std::string& what) {
  const Supposition& one = find(what_if, what);
  REQUIRE(one.gain);
  return one.gain->middle;
}

/// The second rank is 10 ms slower in backward; what both wait for the wire is 4 ms.
std::vector<StepTimes> slow_backward() {
  return {{.data_ms = 3, .forward_ms = 10, .backward_ms = 20, .exposed_comm_ms = 14},
          {.data_ms = 3, .forward_ms = 10, .backward_ms = 30, .exposed_comm_ms = 4}};
}

observe::TraceSpan span(const char* name, std::uint64_t step, double began_ms, double ended_ms) {
  observe::TraceSpan one{.name = name, .verb = {}, .step = step};
  one.began_us = 1e3 * began_ms;
  one.ended_us = 1e3 * ended_ms;
  return one;
}

/// Steps of 57 ms: backward of `backward_ms`; two buckets, full in its middle and at its end. All
/// ranks have the first after 30 ms, and it takes 4; the second after 51, and it takes 6.
observe::RankTrace traced(int rank, double backward_ms) {
  observe::RankTrace trace;
  trace.rank = rank;
  trace.host = "here";
  for (std::uint64_t step = 5; step < 9; ++step) {
    const double at = 57 * static_cast<double>(step), end = at + 11 + backward_ms;
    trace.steps.push_back(span("step", step, at, at + 57));
    trace.phases.push_back(span("loading", step, at, at + 1));
    trace.phases.push_back(span("forward", step, at + 1, at + 11));
    trace.phases.push_back(span("backward", step, at + 11, end));
    trace.phases.push_back(span("wait for bucket 0", step, end, at + 57));
    for (int bucket = 0; bucket < 2; ++bucket) {
      const double began = bucket == 0 ? at + 11 + backward_ms / 2 : end;
      auto one =
          span(bucket == 0 ? "bucket 0" : "bucket 1", step, began, bucket == 0 ? at + 35 : at + 57);
      one.verb = "AllReduce_Sum_f32";
      one.bytes = 4000;
      trace.collectives.push_back(one);
    }
  }
  return trace;
}

}  // namespace

TEST_CASE("a rank as fast as the median gives what it was slower", "[what_if]") {
  const WhatIf what_if = Run({slow_backward()}).supposed();
  CHECK(what_if.not_known.empty());
  CHECK(what_if.step_ms == Approx(47));
  CHECK(what_if.simulated_ms == Approx(47).epsilon(0.001));
  CHECK(gain(what_if, "rank 1 as fast as the median") == Approx(10).epsilon(0.001));
  CHECK(gain(what_if, "rank 1 as fast as the median in backward") == Approx(10).epsilon(0.001));
  CHECK(gain(what_if, "every rank as fast as the median") == Approx(10).epsilon(0.001));
  CHECK(gain(what_if, "no rank waits for rows") == Approx(3).epsilon(0.001));
  for (const Supposition& one : what_if.all) CHECK(one.rank.value_or(1) == 1);  // 0 loses nothing
}

TEST_CASE("ten times the network gives nine tenths of what the last rank waits, at most",
          "[what_if]") {
  const WhatIf what_if = Run({slow_backward()}).supposed();
  const Supposition& network = find(what_if, "10 times the network");
  REQUIRE(network.gain);
  CHECK(network.gain->middle == Approx(3.6).epsilon(0.001));
  CHECK(network.gain->low == 0);
  CHECK_THAT(limits_of(what_if), Contains("at most"));
  CHECK(what_if.all.front().gain->middle >= what_if.all.back().gain->middle);
}

TEST_CASE("intervals span the epochs, and one epoch says that it has no spread", "[what_if]") {
  auto slower = slow_backward();
  slower[0].exposed_comm_ms += 2;
  slower[1].backward_ms += 2;
  const Run run({slow_backward(), slower, slower});
  const Supposition rank = find(run.supposed(), "rank 1 as fast as the median");
  REQUIRE(rank.gain);
  CHECK(rank.gain->middle == Approx(12).epsilon(0.001));
  CHECK(rank.gain->low == Approx(10).epsilon(0.001));
  CHECK(rank.gain->high == Approx(12).epsilon(0.001));
  CHECK_THAT(limits_of(run.supposed()), !Contains("there is one mean"));
  CHECK_THAT(limits_of(Run({slow_backward()}).supposed()), Contains("there is one mean"));
}

TEST_CASE("what backward hides of the network widens the interval", "[what_if]") {
  // Some buckets: as long each, or as long for each byte, is then not the same.
  const WhatIf what_if = Run({slow_backward()}, "[comm]\nbucket-mb = 0.2\n").supposed();
  const Supposition& rank = find(what_if, "rank 1 as fast as the median");
  REQUIRE(rank.gain);
  CHECK(rank.gain->low < rank.gain->high);
  CHECK(rank.gain->high <= Approx(10).epsilon(0.001));
}

TEST_CASE("a timeline of CPUs tells the wire from a late rank", "[what_if]") {
  const Run run({slow_backward()});
  const auto file = run.folder.path / "trace/5-8.json";
  write_file(file, observe::merged_trace({traced(0, 20), traced(1, 40)}, 2000));
  const WhatIf what_if = run.supposed();
  CHECK_THAT(what_if.basis, Contains("4 steps of " + file.string()));
  CHECK(what_if.step_ms == Approx(57));
  CHECK(what_if.simulated_ms == Approx(57));
  CHECK(gain(what_if, "rank 1 as fast as the median") == Approx(20));
  const Supposition& network = find(what_if, "10 times the network");
  CHECK(network.gain->middle == Approx(5.4));
  CHECK(network.gain->low == Approx(5.4));
}

TEST_CASE("a timeline that does not serve is named, and the epochs are used", "[what_if]") {
  const Run run({slow_backward()});
  const auto file = run.folder.path / "trace/5-8.json";
  const auto limits = [&] {
    const WhatIf what_if = run.supposed();
    CHECK(gain(what_if, "rank 1 as fast as the median") == Approx(10).epsilon(0.001));
    return limits_of(what_if);
  };
  write_file(file, observe::merged_trace({traced(0, 20), traced(1, 40)}, 2000).substr(0, 900));
  CHECK_THAT(limits(), Contains(file.string()) && Contains("is not a timeline"));
  write_file(file, observe::merged_trace({traced(0, 20), traced(1, 40)}, 500));
  CHECK_THAT(limits(), Contains("of an earlier start"));
  write_file(file, observe::merged_trace({traced(0, 20)}, 2000));
  CHECK_THAT(limits(), Contains("no step with the reductions of all ranks"));
}

TEST_CASE("what cannot be known says why, and is no number", "[what_if]") {
  const auto why = [](const Run& run) {
    const WhatIf what_if = run.supposed();
    CHECK(table_of(what_if).empty());
    CHECK_THAT(to_json(Diagnosis{}, what_if), Contains("not_known") && !Contains("gain_ms"));
    return heading_of(what_if);
  };
  CHECK_THAT(why(Run({slow_backward()}, "[sync]\ngossip = true\n")), Contains("sync.gossip"));
  CHECK_THAT(why(Run({slow_backward()}, "[model-options]\nnorm-ranks = 2\n")),
             Contains("model-options.norm-ranks"));
  CHECK_THAT(why(Run({slow_backward()}, "[comm]\nbucket = 100\n")),
             Contains("config.toml") && Contains("comm.bucket"));
  auto odd = slow_backward();
  odd[0].other_ms = 100;  // which the second waits for
  odd[0].exposed_comm_ms = 4;
  odd[1].exposed_comm_ms = 94;
  CHECK_THAT(why(Run({odd})), Contains("were recorded"));
  const WhatIf alone = Run({{{.forward_ms = 10, .backward_ms = 20}}}).supposed();
  CHECK(find(alone, "10 times the network").not_known == "there is one rank");
  CHECK_THAT(to_json(Diagnosis{}, alone), Contains("\"not_known\": \"there is one rank\""));
}
