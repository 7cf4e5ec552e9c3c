#include <algorithm>

#include "lockstep/study/parts/parts.hpp"

namespace lockstep::study {
namespace {

backend::ProgramSpec program_of(const PartsSpec& spec, const Parts& parts, std::size_t stage) {
  const train::PipelineShape shape{parts.stages, parts.micro_batches};
  backend::ProgramSpec program = spec.program;
  program.batch = rows_of(spec, parts);
  program.tile = {.index = 0, .count = parts.tiles};
  program.slots = train::slots_of_stage(parts.order, stage, shape);
  program.weights_later = train::late_in_stage(parts.order, stage, shape);
  program.whole = parts.stages > 1 ? &spec.network : nullptr;
  program.recompute = {};
  return program;
}

struct OfStage {
  std::size_t bytes = 0;
  double made_again = 0;
};

OfStage memory_of_stage(const PartsSpec& spec, const Parts& parts, const nn::Network& network,
                        std::size_t stage) {
  using Mode = backend::Recompute::Mode;
  const std::size_t other = spec.other_bytes(parts, stage);
  backend::ProgramSpec program = program_of(spec, parts, stage);
  if (spec.fixed.recompute) program.recompute = *spec.fixed.recompute;
  backend::PlannedMemory memory = spec.memory(network, program);
  if (spec.fixed.recompute) return {memory.total() + other, memory.program.made_again};
  if (parts.again && memory.total() + other > spec.memory_limit) {
    program.recompute.mode = Mode::least;
    memory = spec.memory(network, program);
    if (memory.total() + other <= spec.memory_limit) {
      program.recompute = {
          .mode = Mode::automatic, .memory_limit = spec.memory_limit, .reserved = other};
      memory = spec.memory(network, program);
    }
  }
  return {memory.total() + other, memory.program.made_again};
}

}  // namespace

RanksMemory memory_of(const PartsSpec& spec, const Parts& parts) {
  const std::vector<nn::Network> networks = stages_of(spec, parts.stages);
  RanksMemory memory;
  for (std::size_t s = 0; s < networks.size(); ++s) {
    const OfStage one = memory_of_stage(spec, parts, networks[s], s);
    memory.made_again.push_back(one.made_again);
    if (one.bytes <= memory.bytes) continue;
    memory.bytes = one.bytes;
    memory.stage = s;
  }
  return memory;
}

}  // namespace lockstep::study
