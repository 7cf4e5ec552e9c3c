#include "tests/gpu/fixture.hpp"

#include <iostream>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/device/gpus.hpp"
#include "ports/cuda/program.hpp"

namespace lockstep::test {
using namespace lockstep::backend;
using namespace lockstep::device;

std::unique_ptr<Backend> gpu() {
  const VisibleGpus seen = look_at_gpus();
  if (!seen.gpus.empty()) return make_cuda_backend(0);
  std::cout << "SKIPPED: " << seen.absence << "\n";
  return nullptr;
}

// A product of p-bit numbers is off by 2^-p, and values and gradients are rounded once in each
// layer. In coarse precisions some ReLUs flip too, each with its whole gradient, and the deepest of
// the networks normalises over few values. With exact convolutions that are rounded only where they
// are stored, fp16 was off by 0.06 (deepest: 0.13) and bf16 by 0.09 (0.24).
Tolerance tolerance_of(Precision precision, const nn::Network& network) {
  const bool deep = network.nodes.size() > 30;
  switch (precision) {
    case Precision::fp32:  // 24 bits; sums of up to a thousand products in another order
      return {1e-6, 3e-5};
    case Precision::tf32:  // 11 bits in products, everything else as in fp32
    case Precision::fp16:  // 11 bits
      return {2e-3, deep ? 0.3 : 0.15};
    case Precision::bf16:  // 8 bits
      return {5e-3, deep ? 0.5 : 0.2};
  }
  throw Error("a precision without a tolerance");
}

void poison(Compiled& compiled) {
  dynamic_cast<cuda::CudaProgram&>(*compiled.program).poison();
  const auto& slices = compiled.parameters->layout().slices;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const std::vector<float> nothing(slices[s].tensor.count(),
                                     std::numeric_limits<float>::quiet_NaN());
    compiled.parameters->import_slice(Part::gradients, s, nothing);
  }
}

}  // namespace lockstep::test
