#include "train/files/first_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
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

bool has_head(const model::Model& model) {
  return std::ranges::any_of(model.weights,
                             [](const model::Weight& one) { return nn::in_head(one.tensor.role); });
}

/// What FirstWeights::channels says, of init-channels.
std::optional<std::vector<int>> choose_channels(const std::string& asked, std::size_t theirs,
                                                std::size_t ours, const std::string& path) {
  if (asked.empty()) {
    require(theirs == ours,
            fmt::format("{}: was trained on images of {}, and the data set's have {}: "
                        "--init-channels repeat, new or a list begins with it all the same",
                        path, counted(theirs, "channel"), ours));
    return std::nullopt;
  }
  std::vector<int> from;
  if (asked == "new") return from;
  if (asked == "repeat") {
    for (std::size_t c = 0; c < ours; ++c) from.push_back(static_cast<int>(c % theirs));
    return from;
  }
  for (const std::string& one : listed(asked))
    from.push_back(one == "-" ? -1
                              : static_cast<int>(parse_count(
                                    one, "init-channels: a channel of " + path, 0, theirs - 1)));
  require(from.size() == ours, fmt::format("init-channels = {} is for {}, and the images have {}",
                                           asked, counted(from.size(), "channel"), ours));
  return from;
}

/// The first convolution's filters [out, channels, height, width] for other channels; the values
/// that they give stay of the same size.
void adapt_channels(model::Weight& filters, const std::vector<int>& from) {
  std::vector<std::size_t>& shape = filters.tensor.shape;
  const std::size_t out = shape[0], theirs = shape[1], area = shape[2] * shape[3];
  const double factor = static_cast<double>(theirs) / static_cast<double>(from.size());
  std::vector<float> adapted;
  adapted.reserve(out * from.size() * area);
  for (std::size_t o = 0; o < out; ++o)
    for (const int channel : from)
      for (std::size_t i = 0; i < area; ++i) {
        const auto of = [&](std::size_t c) {
          return double{filters.values[(o * theirs + c) * area + i]};
        };
        double sum = 0;
        for (std::size_t c = 0; channel < 0 && c < theirs; ++c) sum += of(c);
        adapted.push_back(
            static_cast<float>(factor * (channel < 0 ? sum / static_cast<double>(theirs)
                                                     : of(static_cast<std::size_t>(channel)))));
      }
  filters.values = std::move(adapted);
  shape[1] = from.size();
}

/// A file whose classes have no names tells any of that number apart.
bool has_other_classes(const model::Description& file, const data::DataSetInfo& input) {
  const std::vector<std::string>& names = file.input.classes;
  return file.input.task != input.task || file.network.classes != input.classes.size() ||
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

/// That a run's own weights of this tensor stay.
bool stays_new(const FirstWeights& first, const nn::Tensor& tensor) {
  return (!first.keeps_head && nn::in_head(tensor.role)) ||
         (first.channels && first.channels->empty() && tensor.name == first.filters);
}

/// Throws InputError where weights of this model cannot be those of `network`.
void require_fit(const FirstWeights& first, const nn::Network& network) {
  const auto& [path, model, keeps_head, channels, filters] = first;
  const nn::Network& there = model.about.network;
  require(there.name == network.name,
          fmt::format("{}: holds a {}, but the model is {}: give --model {}", path, there.name,
                      network.name, there.name));
  require(!keeps_head || has_head(model),
          fmt::format("{}: has no last layer that could be kept: --head new makes one", path));
  require(
      !keeps_head || there.classes == network.classes,
      fmt::format("{}: says {}, the data set has {}: --head new keeps all but the last layer", path,
                  data::say_outputs(there.classes, model.about.input.task), network.classes));
  for (const nn::Tensor& tensor : nn::tensors(network))
    require(stays_new(first, tensor) || find_weight(model, tensor) != nullptr,
            fmt::format("{}: a {} of another form: no tensor '{}' of this shape", path, there.name,
                        tensor.name));
  require_sound(model, network, path);
}

/// What the first line of a run adds about its last layer.
std::string describe_head(const config::Config& config, const model::Model& model,
                          const data::DataSetInfo& input, bool keeps_head) {
  const std::size_t outputs = input.classes.size();
  const model::Description& file = model.about;
  if (keeps_head)
    return file.input.classes.empty() && config.head == config::HeadChoice::automatic
               ? ", its last layer too: its outputs have no names (--head new makes a new one)"
               : "";
  const std::string made =
      fmt::format(", and a new last layer for {}", data::say_outputs(outputs, input.task));
  if (config.head == config::HeadChoice::fresh || !has_head(model)) return made;
  return made +
         (file.network.classes != outputs || file.input.task != input.task
              ? ": the file's says " + data::say_outputs(file.network.classes, file.input.task)
              : ": the file's are others (--head keep keeps its last layer)");
}

/// And about its first.
std::string describe_channels(const FirstWeights& first, std::size_t theirs) {
  if (!first.channels) return "";
  if (first.channels->empty()) return ", with a new first convolution";
  std::vector<std::string> from;
  for (const int channel : *first.channels)
    from.push_back(channel < 0 ? "-" : std::to_string(channel));
  return fmt::format(", whose first convolution takes channels {} of {}, times {}/{}",
                     join(from, ","), theirs, theirs, from.size());
}

/// A tensor of the file's weights. Values are learned in deviations from their mean, which are this
/// data set's: a last layer that is kept still says the same in the values' units.
std::vector<float> in_deviations_of(const data::DataSetInfo& input, const model::Model& model,
                                    const nn::Tensor& tensor) {
  std::vector<float> numbers = find_weight(model, tensor)->values;
  const data::DataSetInfo& file = model.about.input;
  if (!nn::in_head(tensor.role) || file.task != data::Task::values || input.task != file.task)
    return numbers;
  const std::size_t outputs = input.target_mean.size(), each = numbers.size() / outputs;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t k = i / each;
    const double off = double{file.target_mean.at(k)} - double{input.target_mean[k]};
    numbers[i] = static_cast<float>((numbers[i] * double{file.target_stddev.at(k)} +
                                     (tensor.role == nn::Role::linear_bias ? off : 0)) /
                                    double{input.target_stddev[k]});
  }
  return numbers;
}

/// How the images that the weights will see are normalised: what a file of another program was
/// trained with, it does not say.
std::string describe_normalisation(const data::DataSetInfo& file, const data::DataSetInfo& input) {
  const auto numbers = [](const data::DataSetInfo& info) {
    const std::string shaping = data::say_shaping(info.shaping);
    return fmt::format("[{:.3g}] and [{:.3g}]{}", fmt::join(info.mean, ", "),
                       fmt::join(info.stddev, ", "), shaping.empty() ? "" : " after " + shaping);
  };
  std::string text = fmt::format("; images are normalised by the data set's mean and deviation, {}",
                                 numbers(input));
  if (numbers(file) != numbers(input) && !file.mean.empty())
    text += fmt::format(", and not by those that the file names, {}", numbers(file));
  return text;
}

}  // namespace

FirstWeights read_first_weights(const config::Config& config, const data::DataSetInfo& input,
                                const nn::Network& network) {
  FirstWeights first{.path = choose_checkpoint(config.init), .model = {}};
  first.model =
      model::load_any(first.path, infer::describe_by_config, backend::Part::weights, &input, true);
  first.keeps_head = config.head == config::HeadChoice::automatic
                         ? has_head(first.model) && !has_other_classes(first.model.about, input)
                         : config.head == config::HeadChoice::keep;
  first.channels = choose_channels(config.init_channels, first.model.about.input.channels,
                                   input.channels, first.path);
  first.filters = nn::tensors(network).front().name;
  for (model::Weight& weight : first.model.weights)
    if (first.channels && !first.channels->empty() && weight.tensor.name == first.filters)
      adapt_channels(weight, *first.channels);
  require_fit(first, network);
  return first;
}

void begin_with_weights(const config::Config& config, const data::DataSetInfo& input,
                        const nn::Network& network, backend::Parameters& parameters, bool is_root) {
  const FirstWeights first = read_first_weights(config, input, network);
  const auto& [path, model, keeps_head, channels, filters] = first;
  const auto& slices = parameters.layout().slices;
  for (std::size_t i = 0; i < slices.size(); ++i)
    if (!stays_new(first, slices[i].tensor))
      parameters.import_slice(backend::Part::weights, i,
                              in_deviations_of(input, model, slices[i].tensor));
  if (parameters.has_average()) parameters.start_average();
  if (!is_root) return;
  log::info(fmt::format("beginning with the weights of {}{}{}{}", path,
                        describe_channels(first, model.about.input.channels),
                        describe_head(config, model, input, keeps_head),
                        describe_normalisation(model.about.input, input)));
  const std::vector<std::string>& names = model.about.input.classes;
  if (keeps_head && !names.empty() && !std::ranges::equal(names, input.classes, same_text))
    log::warn(
        fmt::format("{}: its {} have other names than the data set's; --head new begins with a new "
                    "last layer",
                    path, choice_name(input.task)));
}

}  // namespace lockstep::train
