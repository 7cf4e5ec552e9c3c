#include "lockstep/train/decide/memory_limit.hpp"

#include <algorithm>

#include "lockstep/base/files/files.hpp"

namespace lockstep::train {
namespace {

// What the libraries take later: generated code, buffers for messages, stacks of threads.
constexpr std::size_t libraries_bytes = std::size_t{24} << 20;
// The smallest limit, which an error names, is then mostly the same in two starts.
constexpr std::size_t rounding = std::size_t{4} << 20;

bool has_limit(const backend::Recompute& recompute) {
  return recompute.mode == backend::Recompute::Mode::automatic && recompute.memory_limit > 0;
}

}  // namespace

void count_process(backend::Recompute& recompute, const nn::Network& network,
                   const backend::Backend& backend, const OtherMemory& other,
                   comm::Control& control) {
  if (!has_limit(recompute) || backend.name() == "cuda") return;
  const double most =
      control.max({static_cast<double>(resident_bytes())}, "memory of the processes")[0];
  const std::size_t weights = nn::numbers(network) * sizeof(float);
  const std::size_t needed = static_cast<std::size_t>(most) + libraries_bytes + other.loader_bytes +
                             (other.average ? weights : 0) + other.exchange_bytes;
  recompute.reserved = (needed + rounding - 1) / rounding * rounding;
  if (other.checkpoints) recompute.between_steps = (other.average ? 3 : 2) * weights;
}

std::size_t copies_within(const backend::Recompute& recompute, const backend::MemoryPlan& plan,
                          const nn::ArenaLayout& layout, std::size_t bytes, std::size_t most) {
  if (!has_limit(recompute) || recompute.reserved == 0) return most;
  // The average is reserved; frozen layers have weights only.
  const std::size_t parameters = sizeof(float) * (3 * layout.size + layout.frozen_size);
  const std::size_t used = recompute.reserved + parameters + plan.workspace + plan.activations;
  return std::min(most, (recompute.memory_limit - std::min(recompute.memory_limit, used)) / bytes);
}

}  // namespace lockstep::train
