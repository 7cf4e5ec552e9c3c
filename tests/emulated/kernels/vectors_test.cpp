// Vectors on a GPU, and what ranks with different gradients decide by them.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/worlds/nccl.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cuda/parameters.hpp"
#include "ports/cuda/plan/plan.hpp"
#include "tests/emulated/cuda/gpu.hpp"
#include "tests/emulated/ranks.hpp"
#include "tests/support/laws/matrix_laws.hpp"
#include "tests/support/laws/vector_laws.hpp"
#include "tests/support/networks/delayed_average.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

TEST_CASE("vectors are cast, added and scaled on a GPU as on a CPU", "[vectors]") {
  for (const auto streams : {emulated::Streams::eager, emulated::Streams::late}) {
    emulated::conditions().streams = streams;
    const auto backend = make_cuda_backend(0);
    CHECK(fault_of_casts(backend->vectors()) == "");
    CHECK(fault_of_arithmetic(backend->vectors()) == "");
    CHECK(fault_of_vectors(backend->vectors()) == "");
    CHECK(fault_of_products(backend->vectors()) == "");
    CHECK(fault_of_orthogonal_vectors(backend->vectors()) == "");
    emulated::conditions() = {};
  }
}

namespace {

/// One step of an exchange without a network's program: gradients of 1, but for one value on one
/// rank. Returns the loss scale, what was skipped, and whether a weight has changed.
std::string step_with(comm::Control& control, int spoilt_rank, float spoilt) {
  const auto backend = make_cuda_backend(control.rank());
  const auto communicator = comm::make_nccl_communicator(control, {.deadline_s = 60});
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 8, 10));
  const auto parameters = backend->make_parameters(network, Precision::fp16);
  initialise(network, {}, *parameters);
  const nn::ArenaLayout& layout = parameters->layout();
  DelayedAverage exchange({.period = 4},
                          {.buckets = reduce::plan_buckets(layout, 100'000),
                           .update_at_once = true,
                           .loss_scale = true},
                          {*communicator, *backend, *parameters});
  exchange.begin();
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    std::vector<float> gradients(layout.slices[s].tensor.count(), 1);
    if (s == 7 && control.rank() == spoilt_rank) gradients[3] = spoilt;
    parameters->import_slice(Part::gradients, s, gradients);
    exchange.ready(s);
  }
  for (std::size_t b = 0; b < exchange.buckets().size(); ++b) exchange.wait(b);
  std::vector<float> before(layout.slices[0].tensor.count()), after(before.size());
  parameters->export_slice(Part::weights, 0, before);
  backend->judge_gradients(*parameters, exchange.largest_gradient());
  const optim::UpdateRule rule{.formula = optim::Sgd{},
                               .weight_decay = std::vector<float>(layout.slices.size()),
                               .adaptive = {}};
  backend->update(*parameters, rule, {.lr = 100}, 0, layout.learned_slices);
  backend->update_statistics(*parameters, 1);
  exchange.after_update();
  parameters->export_slice(Part::weights, 0, after);
  const LossScale scale = parameters->loss_scale().value();
  return fmt::format("{} {} {}", scale.scale, scale.skipped, before == after ? "kept" : "changed");
}

}  // namespace

TEST_CASE(
    "an overflow of one rank's own gradients skips the step on all ranks, and changes their "
    "loss scales alike",
    "[exchange]") {
  const float worst[] = {std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN()};
  for (const int spoilt_rank : {0, 2})
    for (const float value : worst) {
      const auto told =
          ranks_tell(3, [&](Control& control) { return step_with(control, spoilt_rank, value); });
      CHECK(told == std::vector<std::string>(3, "32768 1 kept"));
    }
  const auto told = ranks_tell(3, [&](Control& control) { return step_with(control, 1, 2); });
  CHECK(told == std::vector<std::string>(3, "65536 0 changed"));
}

TEST_CASE("weights that an exchange writes reach the copies that convolutions read", "[exchange]") {
  const auto backend = make_cuda_backend(0);
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 8, 10));
  const auto parameters = backend->make_parameters(network, Precision::bf16);
  initialise(network, {}, *parameters);
  const auto copies = [&] {
    const auto& state = static_cast<const cuda::CudaParameters&>(*parameters);
    std::vector<std::uint16_t> found(16);
    backend->vectors().read(state.readable(state.layout().slices[0].tensor.name),
                            std::as_writable_bytes(std::span(found)));
    return found;
  };
  const std::vector<std::uint16_t> before = copies();
  backend->vectors().scale(
      2, vector(parameters->device_pointer(Part::weights), parameters->layout().size));
  CHECK(copies() == before);
  parameters->weights_changed();
  std::vector<std::uint16_t> doubled = before;
  for (std::uint16_t& bits : doubled)
    if (bits << 1 != 0) bits = static_cast<std::uint16_t>(bits + 0x80);  // the next exponent
  CHECK(copies() == doubled);
}

TEST_CASE("what an exchange and an update allocate is counted as memory of the GPU", "[exchange]") {
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 8, 10));
  ProgramSpec spec;
  const std::size_t without = cuda::memory_of(network, spec, {}).total();
  spec.exchange_bytes = 12345;
  spec.update_bytes = 1000;
  CHECK(cuda::memory_of(network, spec, {}).total() == without + 13345);
}
