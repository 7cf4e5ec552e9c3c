#include <malloc.h>

#include <cstring>
#include <memory>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "ports/cpu/measure.hpp"
#include "ports/cpu/program.hpp"

namespace lockstep::cpu {

namespace {

void run_once(CpuProgram& program, const nn::Network& network) {
  const std::size_t rows = program.spec().batch;
  const HostMemory images(rows * network.input.count());
  const std::vector<data::Target> targets(rows, data::Target{0, 0, 1});
  program.load({.images = images.as<const std::uint8_t>(),
                .targets = targets.data(),
                .rows = rows,
                .capacity = rows});
  for (const backend::TapeStep& step : program.forward()) step.run();
  if (!program.spec().training) return;
  for (const backend::TapeStep& step : program.backward(false)) step.run();
}

/// All programs stay until the end, as in a run.
std::size_t run_all(const nn::Network& network, std::span<const backend::ProgramSpec> specs,
                    Team& team, std::size_t chunk_bytes) {
  SharedBlock block;
  CpuParameters parameters(network, storage_of(specs.front().precision));
  // All pages are touched, so that they are known. As numbers: 0.0115, far from denormals.
  const std::size_t bytes = parameters.arena().size * sizeof(float);
  for (const backend::Part part : {backend::Part::weights, backend::Part::gradients})
    std::memset(parameters.at(part, 0), 0x3c, bytes);
  std::vector<std::unique_ptr<CpuProgram>> programs;
  for (backend::ProgramSpec spec : specs) {
    spec.recompute = {.mode = backend::Recompute::Mode::least};
    programs.push_back(
        std::make_unique<CpuProgram>(network, spec, parameters, team, block, chunk_bytes));
    run_once(*programs.back(), network);
  }
  block.discard();
  return resident_bytes() - 2 * bytes;
}

}  // namespace

std::size_t measure_memory(const nn::Network& network, std::span<const backend::ProgramSpec> specs,
                           Team& team, std::size_t chunk_bytes) {
  check(!specs.empty(), "programs to measure");
  const std::size_t bytes = run_all(network, specs, team, chunk_bytes);
  // Else the run's own programs would get other places in the heap, next to the gaps of these.
  ::malloc_trim(0);
  return bytes;
}

}  // namespace lockstep::cpu
