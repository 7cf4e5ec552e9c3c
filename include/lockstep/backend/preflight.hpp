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

/// Describes a GPU that need not be in this machine: jobs/gpus/*.json.
struct GpuProfile {
  std::string name;
  std::string source;             ///< where its numbers come from; empty when the file does not say
  std::string cudnn;              ///< the part that cuDNN reads, as JSON
  double memory = 0;              ///< bytes
  std::optional<GpuRates> rates;  ///< empty in a file written by cuDNN itself

  static void fields(auto& self, auto&& visit) {
    visit("deviceName", self.name);
    visit("totalGlobalMem", self.memory);
    visit.later("source", self.source);
    visit.later("rates", self.rates);
  }
};

/// Throws InputError naming `origin` and the key that is missing or not a number.
GpuProfile parse_gpu_profile(const std::string& json, const std::string& origin);
GpuProfile read_gpu_profile(const std::filesystem::path& path);

struct PreflightSpec {
  nn::Network network;
  ProgramSpec program;  ///< batch: rows of one micro-batch on one rank
  GpuProfile gpu;
  bool search_batch = true;  ///< also look for the largest batch, which plans many more programs
};

/// One pass of one convolution: which engine runs it, or why none can.
struct PreflightConv {
  std::string node, what;
  bool possible = false;
  std::string engine;         ///< or the library's reason
  std::size_t workspace = 0;  ///< bytes
};

/// The parts of the neighbouring batch norms that one convolution computes; an empty name: no part.
struct PreflightFusion {
  std::string node;
  std::string applies;   ///< the batch norm, with its ReLU, that it applies to its input
  std::string sums_for;  ///< the batch norm whose sums it makes
};

/// Memory on the device, in bytes.
struct PreflightMemory {
  std::size_t parameters = 0;  ///< weights, momentum, and 16-bit copies of the weights
  std::size_t gradients = 0;   ///< and what the exchange allocates
  std::size_t input = 0, activations = 0, without_reuse = 0, workspace = 0;
  std::size_t total() const { return parameters + gradients + input + activations + workspace; }
};

struct PreflightReport {
  std::vector<PreflightConv> convolutions;
  bool possible = false;  ///< every convolution has an engine; the fields below are set only then
  std::vector<PreflightFusion> fusions;  ///< empty unless asked for
  std::vector<StepFloor> steps;
  PreflightMemory memory;
  bool fits = false;  ///< with room for what the driver and the libraries take
  /// Rows of the largest micro-batch that fits into the GPU's memory and has fast plans; 0: there
  /// is none, or no search was asked for.
  std::size_t largest_batch = 0;
};

/// What a described GPU would do with this program. Builds every plan of the library and runs
/// nothing. Throws InputError if the program was built without CUDA.
PreflightReport preflight(const PreflightSpec& spec);

}  // namespace lockstep::backend
