#include "lockstep/train/statistics.hpp"

#include <vector>

#include "lockstep/base/error.hpp"
#include "train/decide/decide.hpp"

namespace lockstep::train {

WithStatistics reestimate_statistics(const model::Model& model, backend::Backend& backend,
                                     const StatisticsSpec& spec) {
  nn::Network network = model.about.network;
  const std::string why = spec.program.batch == 1 ? why_not_one_row(network) : "";
  require(why.empty(), "a batch of 1 row is too small for new statistics: " + why);
  for (nn::Node& node : network.nodes) node.momentum = 1;  // a batch's share of its statistics
  WithStatistics result{backend.make_parameters(network, spec.program.precision), {}};
  backend::Parameters& parameters = *result.parameters;
  model::put_weights(model, parameters);
  const auto program = backend.compile(network, spec.program, parameters);
  const nn::ArenaLayout& layout = parameters.layout();
  std::vector<std::vector<double>> sums(layout.slices.size());
  std::vector<float> plain;
  for (std::size_t batch = 0; batch < spec.batches; ++batch) {
    program->set_scalars({.gradient_scale = 1 / static_cast<float>(spec.program.batch)});
    program->load(spec.next());
    for (const auto* tape : {&program->forward(), &program->backward(false)})
      for (const backend::TapeStep& step : *tape) step.run();
    for (std::size_t s = layout.learned_slices; s < layout.slices.size(); ++s) {
      plain.resize(layout.slices[s].tensor.count());
      parameters.export_slice(backend::Part::gradients, s, plain);
      sums[s].resize(plain.size());
      for (std::size_t i = 0; i < plain.size(); ++i) sums[s][i] += static_cast<double>(plain[i]);
    }
    result.metrics += program->take_metrics();
  }
  for (std::size_t s = layout.learned_slices; s < layout.slices.size(); ++s) {
    plain.assign(sums[s].size(), 0);
    for (std::size_t i = 0; i < plain.size(); ++i)
      plain[i] = static_cast<float>(sums[s][i] / static_cast<double>(spec.batches));
    parameters.import_slice(backend::Part::weights, s, plain);
  }
  return result;
}

}  // namespace lockstep::train
