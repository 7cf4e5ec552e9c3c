#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/program.hpp"
#include "lockstep/backend/rates.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::backend {

/// A GPU that need not be there: jobs/gpus/*.json.
struct GpuProfile {
  std::string name;
  std::string source;             ///< where its numbers come from; empty when the file does not say
  std::string cudnn;              ///< the part that cuDNN reads, as JSON
  double memory = 0;              ///< bytes
  std::optional<GpuRates> rates;  ///< none in a file as cuDNN itself writes it
};

/// Throws InputError naming `origin` and the key that is missing or no number.
GpuProfile parse_gpu_profile(const std::string& json, const std::string& origin);
GpuProfile read_gpu_profile(const std::filesystem::path& path);

struct PreflightSpec {
  nn::Network network;
  ProgramSpec program;  ///< batch: rows of one micro-batch on one rank
  GpuProfile gpu;
  bool search_batch = true;  ///< also look for the largest batch, which plans many more programs
};

/// One pass of one convolution: which engine does it, or why none does.
struct PreflightConv {
  std::string node, what;
  bool possible = false;
  std::string engine;         ///< or the library's reason
  std::size_t workspace = 0;  ///< bytes
};

/// What one convolution takes in of the batch norms beside it; empty names: nothing.
struct PreflightFusion {
  std::string node;
  std::string applies;   ///< the batch norm, with its ReLU, that it applies to its input
  std::string sums_for;  ///< the batch norm whose sums it makes
};

/// Bytes of device memory.
struct PreflightMemory {
  std::size_t parameters = 0;  ///< weights, momentum, and 16-bit copies of the weights
  std::size_t gradients = 0, input = 0, activations = 0, without_reuse = 0, workspace = 0;
  std::size_t total() const { return parameters + gradients + input + activations + workspace; }
};

struct PreflightReport {
  std::vector<PreflightConv> convolutions;
  bool possible = false;                 ///< every convolution is; only then is what follows filled
  std::vector<PreflightFusion> fusions;  ///< empty when nobody asked for it
  std::vector<StepFloor> steps;
  PreflightMemory memory;
  bool fits = false;              ///< with room for what the driver and the libraries take
  std::size_t largest_batch = 0;  ///< rows of a micro-batch that fit into the GPU's memory and have
                                  ///< fast plans; 0: none do, or nobody looked
};

/// What a GPU that is only described would do with this program. Builds every plan of the library
/// and runs nothing. Throws InputError in a program that was built without CUDA.
PreflightReport preflight(const PreflightSpec& spec);

}  // namespace lockstep::backend
