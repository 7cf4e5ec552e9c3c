#include "lockstep/backend/parameters.hpp"

#include <algorithm>
#include <variant>
#include <vector>

namespace lockstep::backend {

std::size_t update_bytes(const nn::Network& network, const optim::Formula& formula) {
  if (!std::holds_alternative<optim::Muon>(formula)) return 0;
  std::size_t all = 0, largest = 0;
  for (const nn::Tensor& tensor : nn::tensors(network)) {
    if (tensor.role != nn::Role::conv_weight) continue;
    const std::size_t outputs = tensor.shape.front();
    const std::size_t floats = optim::muon_room(outputs, tensor.count() / outputs);
    all += floats;
    largest = std::max(largest, floats);
  }
  return std::min(all, std::max(largest, optim::muon_together)) * sizeof(float);
}

void initialise(const nn::Network& network, const nn::InitSpec& spec, Parameters& parameters) {
  std::vector<float> plain;
  const auto& slices = parameters.layout().slices;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    plain.resize(slices[i].tensor.count());
    nn::initialise(network, slices[i].tensor, spec, plain);
    parameters.import_slice(Part::weights, i, plain);
  }
}

}  // namespace lockstep::backend
