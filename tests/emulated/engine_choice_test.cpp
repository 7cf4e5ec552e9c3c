// Engines chosen by measuring, and the file that keeps the choices.
#include "ports/cuda/plan/engines/engine_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "lockstep/base/files/files.hpp"
#include "ports/cuda/plan/fusion.hpp"
#include "ports/cuda/plan/plan.hpp"
#include "tests/gpu/compiled.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/support/networks/sketch.hpp"
#include "tests/support/written_to.hpp"

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

/// What makes a convolution take a fusion wherever it can.
ConvTuning preferring(const ConvFusion& wanted, PlanCache& cache) {
  return {cache,
          [=](const ConvRequest& request, const ConvPlan&) {
            const ConvFusion& fusion = request.fusion;
            return 1. + (fusion.normalised && !wanted.normalised ? 9 : 0) +
                   (fusion.sums && !wanted.sums ? 9 : 0) +
                   (fusion.norm_gradient && !wanted.norm_gradient ? 9 : 0);
          },
          [](NormPart, std::size_t, std::size_t, Precision) { return 1.; }};
}

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

  PlanCache reader(file, "a card", false);
  CHECK(reader.find("a convolution") == "engine 2");
  reader.keep("another one", "engine 0");
  reader.save();
  CHECK(reader.find("another one") == "engine 0");
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

TEST_CASE("a plan file that cannot be read or written is one warning, and its choices are taken",
          "[plan]") {
  const test::Folder folder;
  const auto blocked = folder.path / "blocked", below = blocked / "new" / "plans.txt";
  std::ofstream(blocked) << "no folder";
  const auto warned_of = [](const std::filesystem::path& file) {
    return test::written_to(STDERR_FILENO, [&] {
      PlanCache cache(file, "a card");
      for (const char* request : {"one", "two"}) {
        cache.keep(request, "engine 1");
        cache.save();
        CHECK(cache.find(request) == "engine 1");
      }
    });
  };
  const std::string rest =
      " (--tune-cache) the next start measures the engines of convolutions "
      "again\n";
  CHECK(warned_of(below) ==
        fmt::format("warning: cannot create the directory {}: Not a directory; without {}{}",
                    below.parent_path().string(), below.string(), rest));
  CHECK(warned_of(folder.path) ==
        fmt::format("warning: cannot read {0}: Is a directory; without {0}{1}",
                    folder.path.string(), rest));
  CHECK(read_text(blocked) == "no folder");

  // What could not be written is, as soon as that is possible.
  PlanCache cache(below, "a card");
  cache.keep("one", "engine 1");
  CHECK_FALSE(test::written_to(STDERR_FILENO, [&] { cache.save(); }).empty());
  std::filesystem::remove(blocked);
  CHECK(test::written_to(STDERR_FILENO, [&] { cache.save(); }).empty());
  CHECK(PlanCache(below, "a card").find("one") == "engine 1");
}

TEST_CASE("a training whose plan file cannot be written takes the engines that it has measured",
          "[plan]") {
  const test::Folder folder;
  std::ofstream(folder.path / "blocked") << "no folder";
  const Case c(bottlenecks(), 2 * compiled::rows, 5);
  const std::string warning = test::written_to(STDERR_FILENO, [&] {
    compiled::Ready ready(c.network, c,
                          {.plan_cache = (folder.path / "blocked" / "plans.txt").string()});
    ready.load(c, 0);
    ready.run(ready.program->forward());
    CHECK(std::isfinite(ready.program->take_metrics().loss));
  });
  CHECK(std::count(warning.begin(), warning.end(), '\n') == 1);
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
      planner.tune_by(ConvTuning{cache,
                                 [&](const ConvRequest& request, const ConvPlan& plan) {
                                   ++timed;
                                   CHECK(timer.seconds(request, plan) == Approx(1e-4));
                                   return plan.engine() == "engine 5" ? 1.0 : 2.0;
                                 },
                                 {}});
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

TEST_CASE("a tuned program fuses the parts of batch norms that measure faster, and remembers them",
          "[plan]") {
  const test::Folder folder;
  const auto file = folder.path / "plans.txt";
  const Case c(bottlenecks(), 2, 5);
  ProgramSpec spec;
  spec.batch = 2;
  spec.precision = Precision::fp16;
  spec.fuse_norms = true;
  spec.plan_cache = file.string();
  CudaDevice device(0);
  PlanTimer timer(device);
  std::size_t timed = 0;
  // What a part costs in the convolution; in a separate kernel it costs 1.
  const auto parts = [&](double forward, double gradient) {
    ConvPlanner planner(device.compute());
    PlanCache cache(file, "a card");
    planner.tune_by(
        ConvTuning{cache,
                   [&](const ConvRequest& request, const ConvPlan&) {
                     return 1 + (request.fusion.sums ? forward : 0) +
                            (request.fusion.norm_gradient ? gradient : 0);
                   },
                   [&](NormPart part, std::size_t rows, std::size_t channels, Precision precision) {
                     ++timed;
                     const cuda::Matrix shape{rows, static_cast<int>(channels)};
                     CHECK(timer.seconds(part, shape, storage_of(precision)) == Approx(1e-4));
                     return 1.0;
                   }});
    std::string text;
    for (const bool again : {false, true}) {
      const ProgramPlan plan = plan_program(c.network, spec, planner);
      std::set<std::string> found;
      for (const PlannedUnit& unit : plan.units)
        if (unit.unit.kind == UnitKind::conv) found.insert(to_string(unit.conv->fusion));
      const std::string all = fmt::format("{}", fmt::join(found, "; "));
      if (again) CHECK(all == text);  // without measuring
      text = all;
      planner.tune_by(std::nullopt);
    }
    cache.save();
    return text;
  };
  CHECK(parts(0.5, 2) == "applied, sums; sums");
  const std::size_t before = timed;
  CHECK(before > 0);
  CHECK(parts(2.5, 0.5) == "applied, sums; sums");  // all choices come from the file
  CHECK(timed == before);
  std::filesystem::remove(file);
  CHECK(parts(2.5, 0.5) == "apart; gradient");
  std::filesystem::remove(file);
  CHECK(parts(1.5, 0.5) == "apart; applied, sums, gradient");
}

TEST_CASE("whichever parts of batch norms are fused, a step's gradients are the same", "[plan]") {
  const test::Folder folder;
  const Case c(bottlenecks(), 2 * compiled::rows, 5);
  const std::string site = gpu()->description();
  const auto gradients = [&](const compiled::How& how) {
    compiled::Ready ready(c.network, c, how);
    ready.load(c, 0);
    ready.run(ready.program->forward());
    ready.run(ready.program->backward(false));
    return ready.gradients();
  };
  const auto apart = gradients({.precision = Precision::fp16});
  std::size_t chosen = 0;
  for (const ConvFusion wanted : {ConvFusion{true, true, true},
                                  {true, true, false},
                                  {false, true, true},
                                  {false, false, true},
                                  {false, true, false}}) {
    const auto file = folder.path / (std::to_string(chosen++) + ".txt");
    CudaDevice device(0);
    ConvPlanner planner(device.compute());
    PlanCache cache(file, site);
    planner.tune_by(preferring(wanted, cache));
    ProgramSpec spec;
    spec.batch = compiled::rows;
    spec.precision = Precision::fp16;
    spec.fuse_norms = spec.deterministic = true;
    spec.plan_cache = file.string();
    const ProgramPlan plan = plan_program(c.network, spec, planner);
    cache.save();
    INFO(to_string(wanted));
    CHECK(std::count_if(plan.units.begin(), plan.units.end(), [&](const PlannedUnit& unit) {
            return unit.conv && unit.conv->fusion == wanted;
          }) > 3);
    const auto fused =
        gradients({.precision = Precision::fp16, .fused = true, .plan_cache = file.string()});
    for (const auto& [name, values] : apart) {
      INFO(name);
      CHECK(test::distance(fused.at(name), {values.begin(), values.end()}) < 0.05);
    }
  }
}
