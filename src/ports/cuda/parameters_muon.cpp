#include <algorithm>

#include "ports/cuda/kernels/muon/muon.hpp"
#include "ports/cuda/parameters.hpp"

namespace lockstep::cuda {

void CudaParameters::apply(const optim::Muon& muon, const optim::UpdateRule& rule,
                           const UpdateArgs& args, std::pair<std::size_t, std::size_t> slices) {
  const cudaStream_t stream = device_.compute().get();
  muon_moments(args,
               {.adaptive = table(adaptive_, rule.adaptive),
                .rest_momentum = muon.rest_momentum,
                .directions = at(backend::Part::gradients, 0)},
               stream);
  const double* weight_sums = add_squares(backend::Part::weights, slices.first, slices.second);
  const double* direction_sums = add_squares(backend::Part::gradients, slices.first, slices.second);
  for (std::size_t s = slices.first; s < slices.second; ++s) {
    if (rule.adaptive.at(s) == 0) continue;
    const FilterShape& shape = filters_.at(s).value();
    muon_filter(args,
                {.outputs = shape.outputs,
                 .columns = shape.physical_count() / shape.outputs,
                 .slice = s,
                 .offset = layout_.slices[s].offset,
                 .weight_sums = weight_sums,
                 .direction_sums = direction_sums,
                 .directions = at(backend::Part::gradients, 0),
                 .room = muon_memory()},
                muon.iterations, stream);
  }
}

/// For any filter, so that a recorded step finds it in the same place.
float* CudaParameters::muon_memory() {
  if (muon_room_.data() != nullptr) return muon_room_.as<float>();
  std::size_t most = 0;
  for (const auto& shape : filters_)
    if (shape)
      most = std::max(most,
                      optim::muon_room(shape->outputs, shape->physical_count() / shape->outputs));
  muon_room_ = DeviceBuffer(most * sizeof(float), "Muon's products");
  return muon_room_.as<float>();
}

}  // namespace lockstep::cuda
