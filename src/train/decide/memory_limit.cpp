#include "train/decide/decide.hpp"

#include <algorithm>

namespace lockstep::train {
namespace {

// The smallest limit, which an error names, is then mostly the same in two starts.
constexpr std::size_t rounding = std::size_t{1} << 20;

// What a trainer takes in addition to its programs: 1 MB was seen.
constexpr std::size_t trainer_bytes = std::size_t{2} << 20;

// What only a whole run takes. Seen: 3 MB of HDF5's code, and up to 5 MB for the loader's threads,
// records and checkpoints.
constexpr std::size_t run_bytes = std::size_t{8} << 20;
// Buffers for messages, once ranks have reduced gradients: 2.5 MB were seen with MPI on one node.
constexpr std::size_t message_bytes = std::size_t{4} << 20;

/// Bytes of the largest tensor, which is made plain on its way into a checkpoint.
std::size_t largest_tensor(const std::vector<nn::Tensor>& tensors) {
  std::size_t most = 0;
  for (const nn::Tensor& tensor : tensors) most = std::max(most, tensor.count());
  return most * sizeof(float);
}

bool has_limit(const backend::Recompute& recompute) {
  return recompute.mode == backend::Recompute::Mode::automatic && recompute.memory_limit > 0;
}

}  // namespace

void count_process(backend::Recompute& recompute, const nn::Network& network,
                   std::span<const backend::ProgramSpec> programs, backend::Backend& backend,
                   const OtherMemory& other, comm::Control& control) {
  if (!has_limit(recompute)) return;
  const auto measured = backend.measure_memory(network, programs);
  if (!measured) return;
  const double most = control.max({static_cast<double>(*measured)}, "memory of the processes")[0];
  const std::size_t weights = nn::numbers(network) * sizeof(float);
  const std::size_t vectors = (other.average ? 1U : 0) + (other.second_moments ? 1 : 0);
  const std::size_t needed = static_cast<std::size_t>(most) + trainer_bytes + other.loader_bytes +
                             vectors * weights + other.update_bytes + other.exchange_bytes +
                             (other.checkpoints ? run_bytes : 0) +
                             (control.world() > 1 ? message_bytes : 0);
  recompute.reserved = (needed + rounding - 1) / rounding * rounding;
  recompute.scratch_reserved = true;
  if (other.checkpoints)
    recompute.between_steps = (2 + vectors) * weights + largest_tensor(nn::tensors(network));
}

std::size_t copies_within(const backend::Recompute& recompute, const backend::MemoryPlan& plan,
                          const nn::ArenaLayout& layout, std::size_t bytes, std::size_t most) {
  if (!has_limit(recompute) || recompute.reserved == 0) return most;
  // The average and second moments are reserved; frozen layers have weights only.
  const std::size_t parameters = sizeof(float) * (3 * layout.size + layout.frozen_size);
  std::vector<nn::Tensor> tensors;
  for (const nn::Slice& slice : layout.slices) tensors.push_back(slice.tensor);
  const std::size_t used = recompute.reserved + parameters + plan.activations +
                           (recompute.scratch_reserved ? 0 : plan.workspace) +
                           largest_tensor(tensors);
  return std::min(most, (recompute.memory_limit - std::min(recompute.memory_limit, used)) / bytes);
}

}  // namespace lockstep::train
