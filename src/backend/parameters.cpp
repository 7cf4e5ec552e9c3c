#include "lockstep/backend/parameters.hpp"

#include <vector>

namespace lockstep::backend {

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
