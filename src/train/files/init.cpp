#include "train/files/init.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::train {
namespace {

bool in_head(const nn::Tensor& tensor) {
  return tensor.role == nn::Role::linear_weight || tensor.role == nn::Role::linear_bias;
}

const model::Weight* find_weight(const model::Model& model, const nn::Tensor& tensor) {
  const auto same = [&](const model::Weight& weight) {
    return weight.tensor.name == tensor.name && weight.tensor.shape == tensor.shape;
  };
  const auto found = std::find_if(model.weights.begin(), model.weights.end(), same);
  return found == model.weights.end() ? nullptr : &*found;
}

/// Throws InputError where weights of this model cannot be those of `network`.
void require_fit(const model::Model& model, const nn::Network& network, bool keeps_head,
                 const std::string& path) {
  const nn::Network& there = model.about.network;
  require(there.name == network.name,
          fmt::format("{}: holds a {}, but the model is {}: give --model {}", path, there.name,
                      network.name, there.name));
  require(!keeps_head || there.classes == network.classes,
          fmt::format("{}: tells {} classes apart, the data set has {}: --head new keeps all but "
                      "the last layer",
                      path, there.classes, network.classes));
  for (const nn::Tensor& tensor : nn::tensors(network))
    require((!keeps_head && in_head(tensor)) || find_weight(model, tensor) != nullptr,
            fmt::format("{}: a {} of another form: no tensor '{}' of this shape", path, there.name,
                        tensor.name));
}

}  // namespace

void begin_with_weights(const config::Config& config, const data::DataSetInfo& input,
                        const nn::Network& network, backend::Parameters& parameters, bool is_root) {
  const bool keeps_head = config.head == config::HeadChoice::keep;
  const std::string path = choose_checkpoint(config.init);
  const model::Model model =
      model::load_any(path, describe_by_config, backend::Part::weights, &input);
  require_fit(model, network, keeps_head, path);
  const auto& slices = parameters.layout().slices;
  for (std::size_t i = 0; i < slices.size(); ++i)
    if (keeps_head || !in_head(slices[i].tensor))
      parameters.import_slice(backend::Part::weights, i,
                              find_weight(model, slices[i].tensor)->values);
  if (parameters.has_average()) parameters.start_average();
  if (!is_root) return;
  log::info(fmt::format("beginning with the weights of {}{}", path,
                        keeps_head ? ""
                                   : fmt::format(", and a new last layer for {}",
                                                 counted(network.classes, "class"))));
  const std::vector<std::string>& names = model.about.input.classes;
  if (keeps_head && !names.empty() && names != input.classes)
    log::warn(
        fmt::format("{}: its classes have other names than the data set's; --head new begins "
                    "with a new last layer",
                    path));
}

}  // namespace lockstep::train
