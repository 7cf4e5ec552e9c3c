#include <cmath>
#include <numbers>

#include <catch2/catch.hpp>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/train/specs.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::optim;

namespace {

bool near(double got, double want, double tolerance) { return std::abs(got - want) <= tolerance; }

}  // namespace

TEST_CASE("the CIFAR recipe's learning rate is its formula at every step", "[schedule]") {
  const std::uint64_t per_epoch = 390, total = 5 * per_epoch;
  const ScheduleSpec spec{
      .base = 0.2f, .warmup_steps = per_epoch, .total_steps = total, .decay = Decay::cosine};
  for (std::uint64_t step = 0; step < total; ++step) {
    const double want =
        step < per_epoch
            ? 0.2 * static_cast<double>(step + 1) / static_cast<double>(per_epoch)
            : 0.1 * (1 + std::cos(std::numbers::pi * static_cast<double>(step - per_epoch) /
                                  static_cast<double>(total - per_epoch)));
    REQUIRE(near(learning_rate(spec, step), want, 2e-8));
  }
}

TEST_CASE("warm-up starts above its start and ends at the base", "[schedule]") {
  const ScheduleSpec spec{.base = 0.5f,
                          .warmup_start = 0.1f,
                          .warmup_steps = 4,
                          .total_steps = 10,
                          .decay = Decay::constant};
  CHECK(near(learning_rate(spec, 0), 0.2, 1e-7));
  CHECK(near(learning_rate(spec, 3), 0.5, 1e-7));
  CHECK(near(learning_rate(spec, 9), 0.5, 1e-7));
}

TEST_CASE("step decay multiplies at each milestone and not before", "[schedule]") {
  const ScheduleSpec spec{
      .base = 1, .total_steps = 100, .decay = Decay::step, .milestones = {30, 60}, .factor = 0.1f};
  CHECK(near(learning_rate(spec, 29), 1, 1e-7));
  CHECK(near(learning_rate(spec, 30), 0.1, 1e-7));
  CHECK(near(learning_rate(spec, 59), 0.1, 1e-7));
  CHECK(near(learning_rate(spec, 60), 0.01, 1e-7));
}

TEST_CASE("polynomial and cosine decay end at the final rate and stay there", "[schedule]") {
  for (const Decay decay : {Decay::cosine, Decay::polynomial}) {
    const ScheduleSpec spec{
        .base = 1, .final_lr = 0.25f, .total_steps = 8, .decay = decay, .power = 1};
    CHECK(near(learning_rate(spec, 4), 0.625, 1e-7));
    CHECK(near(learning_rate(spec, 8), 0.25, 1e-7));
    CHECK(near(learning_rate(spec, 1000), 0.25, 1e-7));
  }
}

TEST_CASE("polynomial decay is a power of what remains", "[schedule]") {
  for (const float power : {0.5f, 2.0f, 3.0f}) {
    const ScheduleSpec spec{.base = 1,
                            .final_lr = 0.2f,
                            .warmup_steps = 2,
                            .total_steps = 10,
                            .decay = Decay::polynomial,
                            .power = power};
    for (std::uint64_t step = 2; step < 10; ++step)
      CHECK(near(learning_rate(spec, step),
                 0.2 + 0.8 * std::pow(static_cast<double>(10 - step) / 8, power), 1e-7));
  }
}

TEST_CASE("a configuration's epochs become steps", "[schedule]") {
  config::Config config;
  config::apply_toml(config,
                     "epochs = 6\n[optim]\nlr = 0.5\nwarmup-epochs = 0.25\nwarmup-start = 0.1\n"
                     "decay = \"step\"\nmilestones = [2, 5]\nfactor = 0.2\n",
                     "test");
  const ScheduleSpec step = train::make_schedule(config, 10);
  CHECK(step.total_steps == 60);
  CHECK(step.warmup_steps == 3);  // 2.5, to the nearest
  CHECK(step.milestones == std::vector<std::uint64_t>{20, 50});
  CHECK(near(learning_rate(step, 0), 0.1 + 0.4 / 3, 1e-7));
  CHECK(near(learning_rate(step, 2), 0.5, 1e-7));
  CHECK(near(learning_rate(step, 19), 0.5, 1e-7));
  CHECK(near(learning_rate(step, 20), 0.1, 1e-7));
  CHECK(near(learning_rate(step, 59), 0.02, 1e-7));

  config = {};
  config::apply_toml(config,
                     "epochs = 2\n[optim]\nlr = 0.5\ndecay = \"polynomial\"\npower = 3\n"
                     "final-lr = 0.1\n",
                     "test");
  CHECK(near(learning_rate(train::make_schedule(config, 10), 15), 0.1 + 0.4 / 64, 1e-7));
  for (const auto& [decay, middle] :
       {std::pair{Decay::constant, 0.5}, std::pair{Decay::cosine, 0.3}}) {
    config.optim.decay = decay;
    CHECK(near(learning_rate(train::make_schedule(config, 10), 10), middle, 1e-7));
  }
}

TEST_CASE("a schedule that is all warm-up is finite at its end", "[schedule]") {
  const ScheduleSpec spec{.base = 1, .warmup_steps = 5, .total_steps = 5, .decay = Decay::cosine};
  CHECK(near(learning_rate(spec, 4), 1, 0));
  CHECK(near(learning_rate(spec, 5), 0, 1e-7));
}

TEST_CASE("unknown names of decays and precisions are errors that name them", "[schedule]") {
  CHECK(parse_choice<Decay>("polynomial", "decay") == Decay::polynomial);
  CHECK_THROWS_WITH(parse_choice<Decay>("cosin", "decay"),
                    Catch::Contains("cosin") && Catch::Contains("cosine"));
  CHECK(parse_precision("bf16") == Precision::bf16);
  CHECK_THROWS_AS(parse_precision("bf8"), InputError);
}
