// Frozen layers on the GPU's backend: programs of evaluation and training in turn.
#include <catch2/catch.hpp>

#include "tests/support/laws/frozen.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

TEST_CASE("on a GPU, too, the layers after frozen ones have the gradients of the whole network",
          "[frozen]") {
  const auto backend = make_cuda_backend(0);
  // In 16 bits a whole network's gradients are as far from the oracle's (tests/gpu/fixture.cpp).
  for (const nn::Network& network : all_sketches()) {
    check_frozen(*backend, network, Precision::fp32, 1e-4);
    check_frozen(*backend, network, Precision::bf16, 0.2);
    check_frozen(*backend, network, Precision::fp16, 0.15);
  }
}
