#include "lockstep/train/decide/gpu_steps.hpp"

#include <catch2/catch.hpp>

using namespace lockstep;
using namespace lockstep::train;
using backend::Precision;
using config::Switch;

namespace {

constexpr Precision precisions[] = {Precision::fp32, Precision::tf32, Precision::bf16,
                                    Precision::fp16};

/// Calls `law` with everything that does not depend on what was asked for.
template <class Law>
void for_all_settings(Law law) {
  for (const Precision precision : precisions)
    for (const bool deterministic : {false, true})
      for (const bool steps_differ : {false, true})
        for (const bool trains_norms : {false, true}) {
          INFO(to_string(precision)
               << (deterministic ? ", deterministic" : "") << (steps_differ ? ", steps differ" : "")
               << (trains_norms ? "" : ", norms are frozen"));
          law(GpuStepsSetting{.precision = precision,
                              .deterministic = deterministic,
                              .steps_differ = steps_differ,
                              .trains_norms = trains_norms});
        }
}

}  // namespace

TEST_CASE("on GPUs steps run in the fastest way that a training allows", "[train][decide]") {
  for_all_settings([](GpuStepsSetting setting) {
    setting.on_gpus = true;
    const bool fp16 = setting.precision == Precision::fp16;
    CHECK(choose_gpu_steps(setting) ==
          GpuSteps{.graph = !setting.steps_differ,
                   .tune = !setting.deterministic,
                   .fuse_norms = fp16 && !setting.deterministic && setting.trains_norms});
  });
}

TEST_CASE("other backends have no such ways, and say nothing", "[train][decide]") {
  for_all_settings([](const GpuStepsSetting& setting) {
    const GpuSteps chosen = choose_gpu_steps(setting);
    CHECK(chosen == GpuSteps{});
    CHECK(describe_gpu_steps(setting, chosen, "plans.txt").empty());
  });
}

TEST_CASE("what was asked for holds on every backend", "[train][decide]") {
  for_all_settings([](GpuStepsSetting setting) {
    for (const bool on_gpus : {false, true})
      for (const bool on : {false, true}) {
        setting.on_gpus = on_gpus;
        setting.graph = setting.tune = setting.fuse_norms = on ? Switch::on : Switch::off;
        const GpuSteps chosen = choose_gpu_steps(setting);
        CHECK(chosen == GpuSteps{on, on, on});
        CHECK(describe_gpu_steps(setting, chosen, "plans.txt").empty());
      }
  });
}

TEST_CASE("a start says which ways it chose, and only those", "[train][decide]") {
  const auto said = [](GpuStepsSetting setting) {
    setting.on_gpus = true;
    return describe_gpu_steps(setting, choose_gpu_steps(setting), "runs/plans.txt");
  };
  CHECK(said({.precision = Precision::fp16}) ==
        "on this GPU: steps as a CUDA graph, engines by measurement (runs/plans.txt), batch norms "
        "fused; --graph, --tune and --fuse-norms change that");
  CHECK(said({.graph = Switch::on, .precision = Precision::fp16}) ==
        "on this GPU: engines by measurement (runs/plans.txt), batch norms fused; --tune and "
        "--fuse-norms change that");
  CHECK(said({.deterministic = true}) ==
        "on this GPU: steps as a CUDA graph; --graph changes that");
  CHECK(said({.deterministic = true, .steps_differ = true}).empty());
}

TEST_CASE("a start that resumes on GPUs keeps what the bits depend on", "[train][decide]") {
  config::Config before;
  before.backend = config::BackendChoice::cuda;
  before.precision = Precision::fp16;
  before.graph = before.tune = before.fuse_norms = Switch::off;
  const GpuStepsSetting open{.on_gpus = true, .precision = Precision::fp16};
  const auto resumed = [&](const GpuStepsSetting& asked) {
    return choose_gpu_steps(keep_bits(asked, before));
  };
  CHECK(resumed(open) == GpuSteps{.graph = true});
  GpuStepsSetting asked = open;
  asked.tune = Switch::on;
  CHECK(resumed(asked) == GpuSteps{.graph = true, .tune = true});
  before.tune = Switch::on;
  CHECK(resumed(open) == GpuSteps{.graph = true, .tune = true});
  asked = open;
  asked.deterministic = true;
  CHECK(resumed(asked) == GpuSteps{.graph = true});

  const GpuSteps all{true, true, true};
  before.tune = Switch::off;
  before.precision = Precision::bf16;
  CHECK(resumed(open) == all);
  before.precision = Precision::fp16;
  before.backend = config::BackendChoice::cpu;
  CHECK(resumed(open) == all);
  before.backend = config::BackendChoice::cuda;
  before.tune = before.fuse_norms = Switch::on;
  CHECK(resumed({.precision = Precision::fp16}) == GpuSteps{});
}

TEST_CASE("the configuration that a run follows has these ways in its keys", "[train][decide]") {
  const config::Config followed = GpuSteps{.graph = true, .fuse_norms = true}.in({});
  CHECK(followed.graph == Switch::on);
  CHECK(followed.tune == Switch::off);
  CHECK(followed.fuse_norms == Switch::on);
}
