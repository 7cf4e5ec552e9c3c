// Engines chosen by measuring, and the file that keeps the choices.
#include "ports/cuda/plan/engines/plan_cache.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <limits>
#include <set>

#include "lockstep/base/files/files.hpp"
#include "ports/cuda/plan/measure.hpp"
#include "ports/cuda/plan/plan.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::cuda;
using namespace lockstep::test;

namespace {

/// A list of engines whose times the test sets: below 0 it does not build, 0 it cannot run.
struct Offered {
  explicit Offered(std::vector<double> times) : seconds(std::move(times)) {
    list.count = seconds.size();
    list.name = [](std::size_t i) { return "engine " + std::to_string(i); };
    list.builds = [this](std::size_t i) { return !(seconds[i] < 0); };
    list.seconds = [this](std::size_t i) -> std::optional<double> {
      measured.push_back(i);
      if (seconds[i] == 0) return std::nullopt;
      return seconds[i];
    };
  }
  std::vector<double> seconds;
  std::vector<std::size_t> measured;
  EngineList list;
};

}  // namespace

TEST_CASE("the fastest of the first engines that build and run is taken, and remembered",
          "[plan]") {
  const test::Folder folder;
  const auto file = folder.path / "new" / "plans.txt";
  const double never = std::numeric_limits<double>::quiet_NaN();
  Offered offered({never, -1, 3, 0, 5, 3, 4, 6, 7, 1, 1});
  PlanCache cache(file, "a card");
  CHECK(choose_engine(cache, "a convolution", offered.list) == 2);
  CHECK(offered.measured == std::vector<std::size_t>{0, 2, 3, 4, 5, 6, 7, 8});
  CHECK(choose_engine(cache, "a convolution", offered.list) == 2);
  CHECK(offered.measured.size() == most_measured);
  cache.save();
  CHECK(PlanCache(file, "a card").find("a convolution") == "engine 2");
  CHECK(PlanCache(file, "another card").find("a convolution").empty());
  CHECK(PlanCache(file, "a card").find("another one").empty());

  offered.seconds[2] = -1;  // it is known, but no longer builds
  CHECK(choose_engine(cache, "a convolution", offered.list) == 9);
  Offered nothing({-1, 0});
  CHECK_FALSE(choose_engine(cache, "another one", nothing.list));
  CHECK(cache.find("another one").empty());
}

TEST_CASE("what several processes have measured is in the file, in whichever order they write",
          "[plan]") {
  const test::Folder folder;
  const auto file = folder.path / "plans.txt";
  PlanCache first(file, "a card"), second(file, "a card");
  first.keep("one", "engine 1");
  second.keep("two", "engine 2");
  first.save();
  second.save();
  const PlanCache both(file, "a card");
  CHECK(both.find("one") == "engine 1");
  CHECK(both.find("two") == "engine 2");
}

TEST_CASE("lines that are torn, changed or of another version count as absent", "[plan]") {
  const test::Folder folder;
  const auto file = folder.path / "plans.txt";
  {
    PlanCache cache(file, "a card");
    for (const char* request : {"1", "2", "3"}) cache.keep(request, "engine 7");
    cache.save();
  }
  const std::string whole = read_text(file);
  const auto known_in = [&](const std::string& text) {
    std::ofstream(file) << text;
    const PlanCache cache(file, "a card");
    std::string known;
    for (const char* request : {"1", "2", "3"})
      if (cache.find(request) == "engine 7") known += request;
    return known;
  };
  CHECK(known_in(whole) == "123");
  CHECK(known_in(whole.substr(0, whole.size() - 3)) == "12");
  std::string changed = whole;
  changed[whole.find("engine 7") + 7] = '8';
  CHECK(known_in(changed) == "23");
  CHECK(known_in("lockstep plans 2" + whole.substr(whole.find('\n'))) == "");
  CHECK(known_in("") == "");
  CHECK(known_in("\t\n\n\x01\t\t\t") == "");
}

TEST_CASE("a program that asks for it takes the engines that are measured fastest", "[plan]") {
  const test::Folder folder;
  const auto file = folder.path / "plans.txt";
  const Case c(bottlenecks(), 2, 5);
  ProgramSpec spec;
  spec.batch = 2;
  spec.plan_cache = file.string();
  CudaDevice device(0);
  PlanTimer timer(device);
  std::size_t timed = 0;
  const auto engines = [&](bool tuned) {
    ConvPlanner planner(device.compute());
    PlanCache cache(file, "a card");
    if (tuned)
      planner.tune_by(ConvTuning{cache, [&](const ConvRequest& request, const ConvPlan& plan) {
                                   ++timed;
                                   CHECK(timer.seconds(request, plan) == Approx(1e-3));
                                   return plan.engine() == "engine 5" ? 1.0 : 2.0;
                                 }});
    const ProgramPlan plan = plan_program(c.network, spec, planner);
    cache.save();
    std::set<std::string> found;
    for (const PlannedUnit& unit : plan.units)
      if (unit.conv) found.insert(unit.conv->forward->engine());
    return found;
  };
  CHECK(engines(false) == std::set<std::string>{"emulated"});
  CHECK(engines(true) == std::set<std::string>{"engine 5"});
  CHECK(timed > 10 * most_measured);
  CHECK(timed % most_measured == 0);
  const std::size_t before = timed;
  CHECK(engines(true) == std::set<std::string>{"engine 5"});
  CHECK(timed == before);  // all choices come from the file
}
