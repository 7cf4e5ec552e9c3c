#include "lockstep/train/memory_limit.hpp"

#include "lockstep/base/files.hpp"

namespace lockstep::train {
namespace {

// What the libraries take later: generated code, buffers for messages, stacks of threads.
constexpr std::size_t libraries_bytes = std::size_t{24} << 20;
// The smallest limit, which an error names, is then mostly the same in two starts.
constexpr std::size_t rounding = std::size_t{4} << 20;

}  // namespace

void count_process(backend::Recompute& recompute, const nn::Network& network,
                   const backend::Backend& backend, const OtherMemory& other,
                   comm::Control& control) {
  if (recompute.mode != backend::Recompute::Mode::automatic || recompute.memory_limit == 0 ||
      backend.name() == "cuda")
    return;
  const double most =
      control.max({static_cast<double>(resident_bytes())}, "memory of the processes")[0];
  const std::size_t weights = nn::numbers(network) * sizeof(float);
  const std::size_t needed = static_cast<std::size_t>(most) + libraries_bytes + other.loader_bytes +
                             (other.average ? weights : 0) + other.exchange_bytes;
  recompute.reserved = (needed + rounding - 1) / rounding * rounding;
  if (other.checkpoints) recompute.between_steps = (other.average ? 3 : 2) * weights;
}

}  // namespace lockstep::train
