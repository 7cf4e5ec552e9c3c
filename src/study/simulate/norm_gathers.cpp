// Which batch norms share a gather. The CPU backend's regions end where a batch norm needs all of
// the batch, so the number of batch norms on the longest way to a node says in which region it is.
// In forward the statistics are gathered before the region that reads the batch norm, in backward
// the sums before that of its convolution. So the batch norms of a block's last convolution and of
// its skip branch share one in forward, those of its first convolution and of its skip branch one
// in backward.
#include "lockstep/study/simulate/norm_gathers.hpp"

#include <algorithm>
#include <map>

#include "lockstep/base/error.hpp"

namespace lockstep::study {
namespace {

/// By node: batch norms on the longest way to it, itself included.
std::vector<std::size_t> depths(const nn::Network& network) {
  std::vector<std::size_t> depth(network.nodes.size(), 0);
  for (std::size_t n = 0; n < network.nodes.size(); ++n) {
    for (const std::size_t input : network.nodes[n].inputs)
      depth[n] = std::max(depth[n], depth[input]);
    if (network.nodes[n].op == nn::Op::batch_norm) ++depth[n];
  }
  return depth;
}

/// The step of backward after which this node's gradients are final, in which its sums are needed.
std::size_t step_of(const backend::TimedTape& tape, const nn::ArenaLayout& layout,
                    std::size_t node) {
  for (std::size_t step = 0; step < tape.backward.size(); ++step)
    for (const std::size_t slice : tape.backward[step].final_slices)
      if (layout.slices[slice].tensor.node == node) return step;
  throw Error("a tape leaves a batch norm without its gradient");
}

}  // namespace

std::vector<NormGather> norm_gathers(const nn::Network& network) {
  const std::vector<std::size_t> depth = depths(network);
  const auto readers = nn::readers(network);
  std::map<std::size_t, NormGather> forward, backward;
  const auto add = [&](NormGather& gather, std::size_t norm) {
    if (gather.norms.empty()) gather.floats = 1;  // the rank's rows
    gather.norms.push_back(norm);
    gather.floats += 2 * network.nodes[norm].shape.channels;
  };
  for (std::size_t n = 0; n < network.nodes.size(); ++n) {
    if (network.nodes[n].op != nn::Op::batch_norm) continue;
    add(forward[depth[readers[n].front()]], n);
    add(backward[depth[n]], n);
  }
  std::vector<NormGather> all;
  for (const auto& [at, gather] : forward) all.push_back(gather);
  for (auto& [at, gather] : backward) {
    gather.backward = true;
    all.push_back(gather);
  }
  return all;
}

StepTimeline simulate_step(const backend::TimedTape& tape, const nn::Network& network,
                           std::size_t bucket_bytes, const CostOf& cost,
                           const GatherSeconds& gather_s) {
  const nn::ArenaLayout layout = backend::plain_layout(network);
  backend::TimedTape with = tape;
  for (const NormGather& gather : norm_gathers(network)) {
    const double ms = 1e3 * gather_s(gather.bytes());
    std::size_t first = gather.backward ? tape.backward.size() : 0;
    if (gather.backward)
      for (const std::size_t norm : gather.norms)
        first = std::min(first, step_of(tape, layout, norm));
    (gather.backward ? with.backward : with.forward).at(first).ms += ms;
  }
  StepTimeline step = simulate_step(with, layout, bucket_bytes, cost);
  step.norms_ms = with.forward_ms() - tape.forward_ms() + with.backward_ms() - tape.backward_ms();
  step.forward_ms = tape.forward_ms();
  step.backward_ms = tape.backward_ms();
  return step;
}

}  // namespace lockstep::study
