#include "lockstep/backend/timed_tape.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/resnet.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using Catch::Contains;

namespace {

nn::Network network(const std::string& model) { return nn::resnet(nn::usual_resnet(model, 0, 0)); }

double total_ms(const TimedTape& tape) { return tape.forward_ms() + tape.backward_ms(); }

/// A tape file with one step for each tensor, of 2 ms each, after one forward step of 3 ms.
std::string tape_of(const nn::Network& net) {
  std::string steps = R"({"name": "all", "ms": 3, "final": []})";
  for (const nn::Slice& slice : plain_layout(net).slices)
    steps += R"(, {"name": "back", "ms": 2, "final": [")" + slice.tensor.name + "\"]}";
  return R"({"model": "x", "batch": 16, "ranks": 2, "forward_steps": 1, "update_ms": 5, )"
         R"("tape": [)" +
         steps + "]}";
}

std::string written(const std::string& text) {
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("tape-" + std::to_string(std::hash<std::string>{}(text)) + ".json"))
                               .string();
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("a line's tape takes row_ms a row and step_ms, and each slice is final once",
          "[timed_tape]") {
  const auto* model = GENERATE("resnet20", "resnet50");
  const nn::Network net = network(model);
  const nn::ArenaLayout layout = plain_layout(net);
  for (const std::size_t rows : {1, 32, 256}) {
    const TimedTape tape = time_tape(net, rows, Precision::fp16, LinePace{0.25, 4});
    CHECK(total_ms(tape) == Approx(0.25 * static_cast<double>(rows) + 4).epsilon(1e-9));
    CHECK(tape.backward_ms() > tape.forward_ms());
    std::multiset<std::size_t> final_slices;
    for (const TimedStep& step : tape.forward) CHECK(step.final_slices.empty());
    for (const TimedStep& step : tape.backward)
      final_slices.insert(step.final_slices.begin(), step.final_slices.end());
    REQUIRE(final_slices.size() == layout.slices.size());
    for (std::size_t s = 0; s < layout.slices.size(); ++s) CHECK(final_slices.count(s) == 1);
  }
}

TEST_CASE("at half the efficiency a GPU's tape takes twice as long, and its sum is the floor",
          "[timed_tape]") {
  const nn::Network net = network("resnet50");
  const GpuRates rates{.bandwidth = 2e12, .fp32 = 2e13, .tf32 = 1e14, .bf16 = 3e14, .fp16 = 3e14};
  const TimedTape best = time_tape(net, 64, Precision::fp16, GpuPace{"some", rates, 1});
  const TimedTape half = time_tape(net, 64, Precision::fp16, GpuPace{"some", rates, 0.5});
  CHECK(total_ms(half) == Approx(2 * total_ms(best)));
  CHECK(half.update_ms == Approx(2 * best.update_ms));
  CHECK(floor_ms(net, 64, Precision::fp16, rates) == Approx(total_ms(best) + best.update_ms));
  CHECK(floor_ms(net, 64, Precision::fp32, rates) > 2 * floor_ms(net, 64, Precision::fp16, rates));
}

TEST_CASE("a measured tape keeps its times, in proportion to the rows", "[timed_tape]") {
  const nn::Network net = network("resnet20");
  const Pace pace = read_pace(written(tape_of(net)), 0.5);
  const double slices = static_cast<double>(plain_layout(net).slices.size());
  const TimedTape same = time_tape(net, 8, Precision::fp32, pace);
  CHECK(same.forward_ms() == Approx(3));
  CHECK(same.backward_ms() == Approx(2 * slices));
  CHECK(same.update_ms == Approx(5));
  const TimedTape twice = time_tape(net, 16, Precision::fp32, pace);
  CHECK(twice.forward_ms() == Approx(6));
  CHECK(twice.update_ms == Approx(5));
}

TEST_CASE("a tape of another network, and a file that is no tape, name the file", "[timed_tape]") {
  const nn::Network small = network("resnet20"), large = network("resnet32");
  const std::string path = written(tape_of(small));
  CHECK_THROWS_WITH(time_tape(large, 8, Precision::fp32, read_pace(path, 1)),
                    Contains(path) && Contains("is never final"));
  const std::string longer = written(tape_of(large));
  CHECK_THROWS_WITH(time_tape(small, 8, Precision::fp32, read_pace(longer, 1)),
                    Contains(longer) && Contains("is not there"));
  for (const char* text : {"", "[]", "{}", R"({"model": 3})", R"({"model": "x", "batch": 0})",
                           R"({"deviceName": "GPU"})"}) {
    const std::string bad = written(text);
    CHECK_THROWS_AS(read_pace(bad, 1), InputError);
    CHECK_THROWS_WITH(read_pace(bad, 1), Contains(bad));
  }
}
