#include "ports/cuda/plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lockstep/base/error.hpp"
#include "ports/cuda/parameters.hpp"

namespace lockstep::cuda {

namespace {

constexpr double usable = 0.95;

bool fits(const nn::Network& network, backend::ProgramSpec spec, std::size_t rows,
          ConvPlanner& planner, double bytes) {
  spec.batch = rows;
  spec.plan_cache.clear();  // no one may want this batch
  try {
    const ProgramPlan plan = plan_program(network, spec, planner);
    // Above this size cuDNN 9.19 computes weight gradients without matrix units.
    const auto fast = [](const PlannedUnit& planned) {
      return planned.shape.count() <= std::size_t{std::numeric_limits<std::int32_t>::max()};
    };
    if (!std::all_of(plan.units.begin(), plan.units.end(), fast)) return false;
    return fits_into(memory_of(network, spec, plan), bytes);
  } catch (const Error&) {
    return false;
  }
}

double gigabytes(std::size_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

backend::PreflightMemory memory_of(const nn::Network& network, const backend::ProgramSpec& spec,
                                   const ProgramPlan& plan) {
  const std::size_t floats = cuda::arena_layout(network).size;
  const std::size_t copies = plan.storage == Storage::fp32 ? 0 : bytes_of(plan.storage);
  backend::PreflightMemory memory;
  const std::size_t buffers = 2U + (spec.keeps_average ? 1 : 0) +  // weights, momentum, average
                              (spec.keeps_second_moments ? 1 : 0);
  memory.parameters = floats * (buffers * sizeof(float) + copies);
  memory.gradients = floats * sizeof(float) + spec.update_bytes + spec.exchange_bytes;
  // The next one is copied meanwhile. A later stage has none.
  if (network.nodes[0].op == nn::Op::input)
    memory.input = (spec.slots + 1) * spec.batch * backend::image_bytes(network, spec);
  memory.activations = plan.block;
  memory.without_reuse = plan.without_reuse;
  memory.workspace = plan.workspace;
  return memory;
}

bool fits_into(const backend::PreflightMemory& memory, double bytes) {
  return static_cast<double>(memory.total()) <= usable * bytes;
}

std::size_t largest_batch(const nn::Network& network, const backend::ProgramSpec& spec,
                          ConvPlanner& planner, double bytes) {
  std::size_t good = 0, bad = std::max<std::size_t>(1, spec.batch);
  while (bad <= (std::size_t{1} << 20) && fits(network, spec, bad, planner, bytes)) {
    good = bad;
    bad *= 2;
  }
  while (bad - good > std::max<std::size_t>(1, good / 16)) {
    const std::size_t middle = good + (bad - good) / 2;
    (fits(network, spec, middle, planner, bytes) ? good : bad) = middle;
  }
  return good;
}

void require_fit(const nn::Network& network, const backend::ProgramSpec& spec, ConvPlanner& planner,
                 std::size_t free, std::size_t total) {
  const backend::PreflightMemory memory =
      memory_of(network, spec, plan_program(network, spec, planner));
  if (fits_into(memory, static_cast<double>(free))) return;
  const std::size_t rows = largest_batch(network, spec, planner, static_cast<double>(free));
  const std::string advice =
      rows == 0 ? "not even one row would fit"
                : fmt::format("{} rows would fit: use a smaller batch or --accumulate", rows);
  throw InputError(
      fmt::format("a micro-batch of {} rows of {} in {} needs {:.2f} GB of the GPU's memory "
                  "(weights, momentum and copies {:.2f}, gradients {:.2f}, images {:.2f}, values "
                  "{:.2f}, workspace {:.2f}), and {:.2f} of {:.2f} GB are free, of which the "
                  "libraries need {:.0f} %; {}",
                  spec.batch, network.name, to_string(spec.precision), gigabytes(memory.total()),
                  gigabytes(memory.parameters), gigabytes(memory.gradients),
                  gigabytes(memory.input), gigabytes(memory.activations),
                  gigabytes(memory.workspace), gigabytes(free), gigabytes(total),
                  (1 - usable) * 100, advice),
      Ending::out_of_memory);
}

}  // namespace lockstep::cuda
