#pragma once

#include <string>
#include <vector>

#include "lockstep/backend/precision.hpp"

namespace lockstep::backend {

/// What a GPU can do at best, per second: as stated by its maker, or measured.
struct GpuRates {
  double bandwidth = 0;                           ///< bytes
  double fp32 = 0, tf32 = 0, bf16 = 0, fp16 = 0;  ///< operations, 2 for each multiply-add; dense
  double of(Precision precision) const;

  static void fields(auto& self, auto&& visit) {
    visit("bandwidth", self.bandwidth);
    visit("fp32", self.fp32);
    visit("tf32", self.tf32);
    visit("bf16", self.bf16);
    visit("fp16", self.fp16);
  }
};

/// One step of the tape at its best: each of its kernels reads its inputs once and writes its
/// outputs once.
struct StepFloor {
  std::string name;
  double flops = 0, bytes = 0;
  double shortest_ms = 0;  ///< at a GPU's rates; 0 where they are not known
};

/// A training step on a device whose rates were measured: the tape's steps in order, then the
/// update. A real step can be faster where values stay in the device's caches, or where a
/// convolution uses fewer operations than the direct method.
struct Floor {
  GpuRates rates;
  std::vector<StepFloor> steps;
};

}  // namespace lockstep::backend
