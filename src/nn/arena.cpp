// Why batch norm's running statistics are in the arena. They are averaged over the ranks with the
// gradients of each step, so all ranks hold the same state at any time.
#include "lockstep/nn/arena.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep::nn {

namespace {

constexpr std::size_t alignment = 16;  // floats: one cache line, one AVX-512 vector

std::size_t rounded_up(std::size_t size) { return (size + alignment - 1) / alignment * alignment; }

MatrixForm rows_in_order(const Tensor& tensor, std::size_t size) {
  if (tensor.shape.size() < 2 || size % tensor.shape[0] != 0) return {};
  const std::size_t columns = size / tensor.shape[0];
  return {.rows = tensor.shape[0], .columns = columns, .panel_stride = columns};
}

}  // namespace

const Slice& ArenaLayout::find(const std::string& name) const {
  const auto found = std::find_if(slices.begin(), slices.end(),
                                  [&](const Slice& slice) { return slice.tensor.name == name; });
  if (found == slices.end()) throw Error("the network has no tensor " + name);
  return *found;
}

ArenaLayout arena_layout(const Network& network,
                         const std::function<std::size_t(const Tensor&)>& physical_size) {
  std::vector<Tensor> all = tensors(network);
  // Backward order, so that the first bucket to fill is the first that can be sent; the order
  // within a node does not change.
  std::stable_sort(all.begin(), all.end(), [](const Tensor& a, const Tensor& b) {
    if (learned(a.role) != learned(b.role)) return learned(a.role);
    return learned(a.role) ? a.node > b.node : a.node < b.node;
  });
  ArenaLayout layout;
  for (Tensor& tensor : all) {
    const std::size_t size = physical_size(tensor);
    check(size >= tensor.count(), tensor.name + ": the physical size is smaller than the tensor");
    const bool is_learned = learned(tensor.role);
    const MatrixForm form = rows_in_order(tensor, size);
    layout.slices.push_back({std::move(tensor), layout.size, size, form});
    layout.size += rounded_up(size);
    if (is_learned) {
      layout.learned_slices = layout.slices.size();
      layout.learned_size = layout.size;
    }
  }
  return layout;
}

}  // namespace lockstep::nn
