#include "train/files/resume.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::train {
namespace {

const model::Weight* find_weight(const model::Model& model, const nn::Tensor& tensor) {
  const auto same = [&](const model::Weight& weight) {
    return weight.tensor.name == tensor.name && weight.tensor.shape == tensor.shape;
  };
  const auto found = std::find_if(model.weights.begin(), model.weights.end(), same);
  return found == model.weights.end() ? nullptr : &*found;
}

/// A file whose classes have no names tells any of that number apart.
bool has_other_classes(const model::Description& file, const data::DataSetInfo& input) {
  const std::vector<std::string>& names = file.input.classes;
  return file.network.classes != input.classes.size() ||
         (!names.empty() && !std::ranges::equal(names, input.classes, same_text));
}

/// Throws InputError where a tensor is of no use to `network`, or is not finite.
void require_sound(const model::Model& model, const nn::Network& network, const std::string& path) {
  const std::vector<nn::Tensor> tensors = nn::tensors(network);
  for (const model::Weight& weight : model.weights) {
    const std::string& name = weight.tensor.name;
    const auto same = [&](const nn::Tensor& one) { return one.name == name; };
    require(std::any_of(tensors.begin(), tensors.end(), same),
            fmt::format("{}: a {} of another form: it has a tensor '{}', which the model lacks",
                        path, network.name, name));
    model::require_finite(weight, path + ": ");
  }
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
    require((!keeps_head && nn::in_head(tensor.role)) || find_weight(model, tensor) != nullptr,
            fmt::format("{}: a {} of another form: no tensor '{}' of this shape", path, there.name,
                        tensor.name));
  require_sound(model, network, path);
}

/// What the first line of a run adds about its last layer.
std::string describe_head(const config::Config& config, const model::Description& file,
                          std::size_t classes, bool keeps_head) {
  if (keeps_head)
    return file.input.classes.empty() && config.head == config::HeadChoice::automatic
               ? ", its last layer too: it has no names of classes (--head new makes a new one)"
               : "";
  const std::string made = fmt::format(", and a new last layer for {}", counted(classes, "class"));
  if (config.head == config::HeadChoice::fresh) return made;
  return made + (file.network.classes != classes
                     ? fmt::format(": the file's tells {} apart", file.network.classes)
                     : ": the file's are others (--head keep keeps its last layer)");
}

/// How the images that the weights will see are normalised: what a file of another program was
/// trained with, it does not say.
std::string describe_normalisation(const data::DataSetInfo& file, const data::DataSetInfo& input) {
  const auto numbers = [](const data::DataSetInfo& info) {
    return fmt::format("[{:.3g}] and [{:.3g}]", fmt::join(info.mean, ", "),
                       fmt::join(info.stddev, ", "));
  };
  std::string text = fmt::format("; images are normalised by the data set's mean and deviation, {}",
                                 numbers(input));
  if (numbers(file) != numbers(input) && !file.mean.empty())
    text += fmt::format(", and not by those that the file names, {}", numbers(file));
  return text;
}

}  // namespace

void begin_with_weights(const config::Config& config, const data::DataSetInfo& input,
                        const nn::Network& network, backend::Parameters& parameters, bool is_root) {
  const std::string path = choose_checkpoint(config.init);
  const model::Model model =
      model::load_any(path, infer::describe_by_config, backend::Part::weights, &input);
  const bool keeps_head = config.head == config::HeadChoice::automatic
                              ? !has_other_classes(model.about, input)
                              : config.head == config::HeadChoice::keep;
  require_fit(model, network, keeps_head, path);
  const auto& slices = parameters.layout().slices;
  for (std::size_t i = 0; i < slices.size(); ++i)
    if (keeps_head || !nn::in_head(slices[i].tensor.role))
      parameters.import_slice(backend::Part::weights, i,
                              find_weight(model, slices[i].tensor)->values);
  if (parameters.has_average()) parameters.start_average();
  if (!is_root) return;
  log::info(fmt::format("beginning with the weights of {}{}{}", path,
                        describe_head(config, model.about, network.classes, keeps_head),
                        describe_normalisation(model.about.input, input)));
  const std::vector<std::string>& names = model.about.input.classes;
  if (keeps_head && !names.empty() && !std::ranges::equal(names, input.classes, same_text))
    log::warn(
        fmt::format("{}: its classes have other names than the data set's; --head new begins "
                    "with a new last layer",
                    path));
}

}  // namespace lockstep::train
