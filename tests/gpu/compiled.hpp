#pragma once

// A compiled network for the tests of memory: what is made again, slots, stages.

#include <cuda_runtime.h>
#include <catch2/catch.hpp>
#include "lockstep/base/error.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/plan/plan.hpp"
#include "ports/cuda/program.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "tests/gpu/fixture.hpp"
#include "tests/support/networks/stages.hpp"

namespace lockstep::test::compiled {

using namespace lockstep::backend;

inline constexpr std::size_t rows = 3;

/// How a program is compiled: with deterministic engines.
struct How {
  Precision precision = Precision::fp32;
  bool fused = false;
  Recompute recompute = {};
  std::size_t slots = 1;
  std::string plan_cache = {};
};

/// Whether it gives the same bits twice.
inline bool repeats(const How& how) { return !how.fused || fused_sums_repeat(); }

inline Recompute segments(std::size_t number) {
  return {.mode = Recompute::Mode::segments, .segments = number};
}

/// A network, or a stage of one, with a case's weights.
struct Ready {
  Ready(const nn::Network& network, const Case& c, const How& how)
      : backend(gpu()), parameters(backend->make_parameters(network, how.precision)) {
    ProgramSpec spec;
    spec.batch = rows;
    spec.precision = how.precision;
    spec.fuse_norms = how.fused;
    spec.recompute = how.recompute;
    spec.slots = how.slots;
    spec.plan_cache = how.plan_cache;
    spec.deterministic = true;
    spec.mean = spec.stddev = std::vector<float>(c.network.input.channels, 1.f);
    program = backend->compile(network, spec, *parameters);
    const auto& slices = parameters->layout().slices;
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const auto& values = c.oracle.parameters.at(slices[s].tensor.name);
      parameters->import_slice(Part::weights, s, std::vector<float>(values.begin(), values.end()));
    }
    parameters->set_loss_scale({1024, 0, 0, 0});
  }

  void run(const Tape& tape) const {
    for (const TapeStep& step : tape) step.run();
  }
  void load(const Case& c, std::size_t part) {
    const std::size_t values = rows * c.network.input.count();
    images.assign(c.images.begin(), c.images.end());
    program->load_normalised({images.data() + part * values, values},
                             {c.targets.data() + part * rows, rows});
  }
  Tensors gradients() const {
    return exported(Part::gradients, parameters->layout().slices.size());
  }
  Tensors momentum() const { return exported(Part::momentum, parameters->layout().learned_slices); }
  std::size_t most_segments() const {
    const auto& planned = dynamic_cast<cuda::CudaProgram&>(*program).plan();
    std::vector<bool> applied;
    std::vector<cuda::Unit> units;
    for (const cuda::PlannedUnit& p : planned.units) {
      units.push_back(p.unit);
      applied.push_back(p.value == cuda::nowhere);
    }
    return cuda::cut_units(network(), units, applied).size() + 1;
  }
  Tensors exported(Part part, std::size_t slices) const {
    Tensors all;
    for (std::size_t s = 0; s < slices; ++s) {
      const nn::Tensor& tensor = parameters->layout().slices[s].tensor;
      std::vector<float>& plain = all[tensor.name];
      plain.resize(tensor.count());
      parameters->export_slice(part, s, plain);
    }
    return all;
  }
  const nn::Network& network() const {
    return dynamic_cast<cuda::CudaProgram&>(*program).network();
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Program> program;
  std::vector<float> images;
};

inline std::vector<double> joined(const std::vector<std::vector<float>>& parts) {
  std::vector<double> all;
  for (const std::vector<float>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Of all tensors together.
inline double distance(const Tensors& got, const Tensors& want) {
  std::vector<std::vector<float>> gots, wants;
  for (const auto& [name, values] : want) {
    gots.push_back(got.at(name));
    wants.push_back(values);
  }
  const std::vector<double> of_got = joined(gots);
  return test::distance({of_got.begin(), of_got.end()}, joined(wants));
}

/// What two runs of one step may differ by where fused sums do not repeat. A sum of another order
/// rounds some values of fp16 to their neighbours, and a few layers later most values are rounded
/// independently. So each run is as far from exact numbers as fp16's rounding takes it: with the
/// emulation's engines, by up to 0.14 in the gradients (in the deepest network; else 0.05), 0.0034
/// in the logits and 0.0008 in the loss. Two runs differ by up to twice that. A second step of the
/// deepest network would make 0.4 of it.
struct Nearness {
  explicit Nearness(const nn::Network& network)
      : gradient(tolerance_of(Precision::fp16, network).gradient),
        loss(tolerance_of(Precision::fp16, network).loss) {}
  double gradient, loss, logits = 0.01;
};

}  // namespace lockstep::test::compiled
