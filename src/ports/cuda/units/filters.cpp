#include <algorithm>

#include "lockstep/base/error.hpp"
#include "ports/cuda/parameters.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"

namespace lockstep::cuda {

namespace {

/// Calls body(index in the plain layout, index in the GPU's) for each weight.
template <class Body>
void each_weight(const FilterShape& s, const Body& body) {
  const std::size_t pixels = s.kernel * s.kernel;
  for (std::size_t out = 0; out < s.outputs; ++out)
    for (std::size_t in = 0; in < s.inputs; ++in)
      for (std::size_t p = 0; p < pixels; ++p)
        body((out * s.inputs + in) * pixels + p, (out * pixels + p) * s.channels + in);
}

}  // namespace

void to_physical(const FilterShape& shape, std::span<const float> plain,
                 std::span<float> physical) {
  check(plain.size() == shape.plain_count() && physical.size() == shape.physical_count(),
        "weights of another size");
  std::fill(physical.begin(), physical.end(), 0.f);
  each_weight(shape, [&](std::size_t from, std::size_t to) { physical[to] = plain[from]; });
}

void to_plain(const FilterShape& shape, std::span<const float> physical, std::span<float> plain) {
  check(plain.size() == shape.plain_count() && physical.size() == shape.physical_count(),
        "weights of another size");
  each_weight(shape, [&](std::size_t to, std::size_t from) { plain[to] = physical[from]; });
}

std::optional<FilterShape> filter_shape(const nn::Network& network, const nn::Tensor& tensor) {
  if (tensor.role != nn::Role::conv_weight) return std::nullopt;
  const nn::Node& input = network.nodes[network.nodes[tensor.node].inputs.at(0)];
  const std::size_t channels =
      input.op == nn::Op::input ? padded_image_channels(tensor.shape[1]) : tensor.shape[1];
  return FilterShape{.outputs = tensor.shape[0],
                     .inputs = tensor.shape[1],
                     .kernel = tensor.shape[2],
                     .channels = channels};
}

nn::ArenaLayout arena_layout(const nn::Network& network) {
  return nn::arena_layout(network, [&](const nn::Tensor& tensor) {
    const auto filter = filter_shape(network, tensor);
    return filter ? filter->physical_count() : tensor.count();
  });
}

std::vector<Chunk> cut_chunks(const nn::ArenaLayout& layout) {
  std::vector<Chunk> chunks;
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    const std::size_t begin = layout.slices[s].offset;
    const std::size_t end =
        s + 1 < layout.slices.size() ? layout.slices[s + 1].offset : layout.size;
    for (std::size_t at = begin; at < end; at += chunk_floats)
      chunks.push_back({at,
                        static_cast<std::uint32_t>(std::min<std::size_t>(end - at, chunk_floats)),
                        static_cast<std::uint32_t>(s)});
  }
  return chunks;
}

}  // namespace lockstep::cuda
