// A timeline of all ranks: their clocks, and the files.
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/observe/trace/clock_offset.hpp"
#include "lockstep/observe/trace/rank_trace.hpp"

using namespace lockstep;
using namespace lockstep::observe;
using nlohmann::json;

namespace {

/// How long messages take, to rank 0 and back, in microseconds.
struct Way {
  double to_us = 0, back_us = 0;
};

/// Rounds with a clock that is `ahead_us` of rank 0's and runs faster by `drift`.
struct DriftingClock {
  double ahead_us = 0, drift = 0;
  double at(double root_us) const { return root_us * (1 + drift) + ahead_us; }
  std::vector<ClockRound> rounds(double from_us, const std::vector<Way>& ways) const {
    std::vector<ClockRound> made;
    for (const Way& way : ways) {
      const double look = from_us + way.to_us;
      made.push_back({.sent_us = at(from_us), .back_us = at(look + way.back_us), .root_us = look});
      from_us = look + way.back_us;
    }
    return made;
  }
};

/// `count` ways, each of 5 to some 1000 microseconds; to rank 0 they take `to_factor` times longer.
std::vector<Way> ways_of(std::mt19937& random, std::size_t count, double to_factor) {
  std::lognormal_distribution<double> delay(3, 1);
  std::vector<Way> ways(count);
  for (Way& way : ways) way = {to_factor * (5 + delay(random)), 5 + delay(random)};
  return ways;
}

/// Rank `rank` in steps 7 and 8: what it does on its own clock, which is ahead.
RankTrace traced(int rank, double ahead_us, double end_late_us) {
  RankTrace trace;
  trace.rank = rank;
  trace.host = "node \"a\" \xff";
  trace.first_clock = {1000 + ahead_us, ahead_us, rank == 0 ? 0.0 : 12.0};
  trace.last_clock = trace.first_clock;
  trace.last_clock.at_us += 1000;
  for (const std::uint64_t step : {7, 8}) {
    const double from = 1000 + 300 * static_cast<double>(step - 6) + ahead_us;
    const auto span = [&](const std::string& name, double begin, double end) {
      return TraceSpan{
          .name = name, .verb = {}, .step = step, .began_us = from + begin, .ended_us = from + end};
    };
    trace.steps.push_back(span(fmt::format("step {}", step), 0, 300));
    trace.phases.push_back(span("forward", 0, 100));
    trace.phases.back().computes = true;
    trace.phases.push_back(span("wait for bucket 1", 100, 300));
    for (int bucket = 0; bucket < 2; ++bucket) {
      TraceSpan sum = span(fmt::format("bucket {}", bucket), 50 + 10 * bucket, 200 + 50 * bucket);
      sum.verb = "AllReduce_Sum_f32";
      sum.bytes = 4000;
      sum.ended_us += bucket * end_late_us;
      trace.collectives.push_back(sum);
    }
  }
  return trace;
}

std::vector<json> spans_of(const json& trace, int process) {
  std::vector<json> spans;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["pid"] == process) spans.push_back(event);
  return spans;
}

}  // namespace

TEST_CASE("a clock's reading is as near to the truth as it says, however uneven the ways are",
          "[trace]") {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> ahead(-5e7, 5e7);
  double worst = 0;
  for (int i = 0; i < 2000; ++i) {
    const DriftingClock clock{ahead(random)};
    const double to_factor = i % 3 == 0 ? 1 : i % 3 == 1 ? 20 : 0.05;
    const ClockReading reading =
        read_rounds(clock.rounds(1e6 * i, ways_of(random, 1 + i % 8, to_factor)));
    const double error = std::abs(reading.ahead_us - clock.ahead_us);
    REQUIRE(error <= reading.uncertainty_us + 1e-6);
    worst = std::max(worst, error / reading.uncertainty_us);
  }
  CHECK(worst > 0.8);  // ways of one direction alone use the whole bound
}

TEST_CASE("the fastest round decides, and equal ways give the exact offset", "[trace]") {
  const DriftingClock clock{-50'000};
  const ClockReading reading =
      read_rounds(clock.rounds(100, {{900, 20}, {30, 30}, {10, 5000}, {200, 40}}));
  CHECK(reading.uncertainty_us == Approx(30));
  CHECK(reading.ahead_us == Approx(-50'000).margin(1e-6));
}

TEST_CASE("ranks of one machine have one clock, unless their readings contradict that", "[trace]") {
  const ClockReading near{.at_us = 7, .ahead_us = -20, .uncertainty_us = 30};
  CHECK(on_one_machine(near).ahead_us == 0);
  CHECK(on_one_machine(near).uncertainty_us == 0);
  CHECK(on_one_machine(near).at_us == 7);
  const ClockReading other{.at_us = 7, .ahead_us = -50'000, .uncertainty_us = 30};
  CHECK(on_one_machine(other).ahead_us == -50'000);
  CHECK(on_one_machine(other).uncertainty_us == 30);
}

TEST_CASE("between two readings a steady drift is followed, within the stated uncertainty",
          "[trace]") {
  std::mt19937 random(6);
  for (int i = 0; i < 300; ++i) {
    const DriftingClock clock{50'000, (i % 3 - 1) * 100e-6};
    const double end_us = 60e6;  // a minute, in which 100 ppm are 6 ms
    const ClockAlignment alignment(read_rounds(clock.rounds(0, ways_of(random, 8, 3))),
                                   read_rounds(clock.rounds(end_us, ways_of(random, 8, 0.3))));
    for (const double us : {0.0, 1e6, 30e6, 59e6, 60e6}) {
      // What the drift makes of a round's length is far below a microsecond.
      const double error = std::abs(alignment.on_root(clock.at(us)) - us);
      REQUIRE(error <= alignment.uncertainty_us() + 0.1);
    }
  }
}

TEST_CASE("a merged trace is JSON that has the steps and reductions of all ranks by one clock",
          "[trace]") {
  const std::vector<RankTrace> ranks{traced(0, 0, 0), traced(1, 50'000, 0), traced(2, -50'000, 8)};
  const json trace = json::parse(merged_trace(ranks, 1'234'567));
  CHECK(trace["otherData"]["uncertainty_us"] == 12);
  CHECK(trace["otherData"]["reductions_end_within_us"] == Approx(8));
  CHECK(trace["otherData"]["clocks"][1]["ahead_us"] == json{50'000, 50'000});
  for (int rank = 0; rank < 3; ++rank) {
    std::map<std::string, double> ends;
    std::map<int, double> busy_until;  // by thread, of spans that hold no others
    for (const json& span : spans_of(trace, rank)) {
      const double began = span["ts"], ended = began + span["dur"].get<double>();
      ends[fmt::format("{} of {}", span["name"].get<std::string>(), span["args"]["step"].dump())] =
          ended;
      if (span["cat"] == "step") continue;
      CHECK(began >= busy_until[span["tid"]]);
      busy_until[span["tid"]] = ended;
    }
    CHECK(ends.size() == 10);
    CHECK(ends["step 7 of 7"] == Approx(600));
    CHECK(ends["bucket 1 of 8"] == Approx(850 + (rank == 2 ? 8 : 0)));
  }
}

TEST_CASE("a rank's trace in Kineto's form pairs each reduction with its launch, step by step",
          "[trace]") {
  const std::vector<RankTrace> ranks{traced(0, 0, 0), traced(1, 50'000, 0)};
  const std::string text = kineto_trace(ranks, 1, 1000);
  CHECK(text.find("\"rank\": 1,") < text.find("traceEvents"));  // as its reader looks for it
  const json trace = json::parse(text);
  CHECK(trace["distributedInfo"]["world_size"] == 2);
  CHECK(trace["baseTimeNanoseconds"] == 1'000'000'000);
  std::map<int, json> launches;
  std::map<std::string, int> names;
  for (const json& span : spans_of(trace, 1)) {
    ++names[span["name"]];
    if (span["cat"] == "cuda_runtime") launches[span["args"]["correlation"]] = span;
    if (span["cat"] != "kernel") continue;
    const json& launch = launches.at(span["args"]["correlation"]);
    CHECK(launch["ts"] == span["ts"]);
    CHECK(launch["args"].count("stream") == 0);
    CHECK(span["args"]["stream"].get<int>() > 0);
  }
  CHECK(names["ProfilerStep#7"] == 1);
  CHECK(names["ncclKernel_AllReduce_Sum_f32"] == 4);
  CHECK(names["forward"] == 4);  // on the host, and as a kernel
  CHECK(names["wait for bucket 1"] == 2);
}

TEST_CASE("what ranks' traces say together: the worst clock, and how far ends are apart",
          "[trace]") {
  CHECK(find_in({}).compared_steps == 0);
  CHECK(find_in({traced(0, 0, 0)}).compared_steps == 0);  // one rank has nothing to compare
  std::vector<RankTrace> ranks{traced(0, 0, 0), traced(1, 50'000, 30)};
  TraceFindings found = find_in(ranks);
  CHECK(found.first_step == 7);
  CHECK(found.last_step == 8);
  CHECK(found.uncertain_rank == 1);
  CHECK(found.ends_within_us == Approx(30));
  ranks[1].collectives.pop_back();
  ranks[1].collectives.pop_back();
  CHECK(find_in(ranks).compared_steps == 1);  // step 8 has a sum on one of two ranks
}
