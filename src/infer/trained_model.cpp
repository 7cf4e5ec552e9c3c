#include "lockstep/infer/trained_model.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"

namespace lockstep::infer {
namespace {

/// The keys that the bits of an evaluation depend on.
constexpr std::array<const char*, 3> computing_keys = {"precision", "winograd", "fuse-norms"};

config::Config settings_in_weights(const std::string& path, const model::Model& model) {
  config::Config config;
  of_checkpoint(path, [&] {
    for (const char* key : computing_keys)
      if (const auto found = model.settings.find(key); found != model.settings.end())
        config::set_key(config, key, found->second);
  });
  return config;
}

config::Config settings_in_checkpoint(const std::string& path) {
  const model::CheckpointHeader header = model::read_header(path);
  try {
    return config::config_in(header.config, path);
  } catch (const InputError& error) {
    if (!header.explains_itself()) throw;
    log::warn(fmt::format("{}; its configuration is ignored", error.what()));
    return {};
  }
}

std::string shape_text(const data::DataSetInfo& info) {
  const std::string element =
      info.element == data::Element::u8 ? "" : fmt::format(" of {}", choice_name(info.element));
  const std::string task =
      info.task == data::Task::classes ? "" : fmt::format(" with {}", choice_name(info.task));
  const std::string no_data = info.no_data ? ", no data " + data::say_no_data(info) : "";
  const std::string shaping = info.shaping.any() ? ", " + data::say_shaping(info.shaping) : "";
  return fmt::format("{} x {} pixels of {} channels{}{}{}{}", info.height, info.width,
                     info.channels, element, task, no_data, shaping);
}

nn::Design design_of(const config::Config& config) {
  const config::Config::Model& options = config.model_options;
  nn::Design design{.stem = options.stem,
                    .block = options.block,
                    .blocks = {},
                    .width = options.width,
                    .inner = options.bottleneck_width,
                    .groups = options.groups};
  for (const std::string& entry : listed(options.blocks))
    design.blocks.push_back(parse_count(entry, "model-options.blocks", 1));
  return design;
}

}  // namespace

nn::Network make_network(const config::Config& config, const data::DataSetInfo& data) {
  nn::ResNetSpec spec;
  spec.design = design_of(config);
  spec.model = config.model;
  spec.classes = data.classes.size();
  spec.classifies = data.task == data::Task::classes;
  spec.channels = data.channels;
  spec.height = data.height;
  spec.width = data.width;
  spec.shortcut = config.model_options.shortcut;
  spec.zero_init_residual = config.model_options.zero_init_residual;
  return nn::with_frozen(nn::resnet(spec), config.freeze);
}

model::Preparation preparation(const config::Config& config, const data::DataSetInfo& input) {
  const std::size_t side = std::min(input.height, input.width),
                    usual = model::usual_short_side(side);
  if (config.data.resize > 0) return {model::Resized::all, config.data.resize};
  if (config.data.crop == config::CropChoice::random_resized)
    return {model::Resized::others, usual};
  return {config.data.size > 0 ? model::Resized::jpegs : model::Resized::jpegs_only, usual};
}

backend::ProgramSpec make_program_spec(const config::Config& config, const data::DataSetInfo& data,
                                       std::size_t rows) {
  backend::ProgramSpec spec;
  spec.batch = rows;
  spec.precision = config.precision;
  spec.deterministic = config.deterministic;
  spec.fuse_norms = config.fuse_norms == config::Switch::on;
  spec.winograd = config.winograd;
  spec.keeps_average = config.optim.ema > 0;
  spec.keeps_second_moments = optim::has_second_moments(config.optim.rule);
  spec.recompute = config.recompute;
  spec.recompute.memory_limit = config.memory_limit;
  spec.loss = {.task = data.task,
               .smoothing = config.optim.label_smoothing,
               .delta = config.optim.huber_delta};
  spec.element = data.element;
  spec.no_data = data.no_data;
  spec.shaping = data.shaping;
  spec.mean = data.mean;
  spec.stddev = data.stddev;
  return spec;
}

model::Description describe_by_config(const model::CheckpointHeader& header,
                                      const std::filesystem::path& path) {
  config::Config config = config::config_in(header.config, path.string());
  config.freeze = nn::Freeze::none;
  return {make_network(config, header.input), header.input, preparation(config, header.input)};
}

void keep_settings(model::Model& model, const config::Config& config) {
  for (const char* key : computing_keys) model.settings[key] = config::find_key(key)->get(config);
}

config::Config settings_of(const std::string& checkpoint, const model::Model& model) {
  return model::is_weights_file(checkpoint) ? settings_in_weights(checkpoint, model)
                                            : settings_in_checkpoint(checkpoint);
}

config::Config settings_of(const std::string& checkpoint, const std::string& precision) {
  config::Config config = settings_in_checkpoint(checkpoint);
  if (!precision.empty()) config::set_key(config, "precision", precision);
  return config;
}

data::DataSetInfo input_of(const model::Description& about, const data::DataSetInfo* rows) {
  data::DataSetInfo input = about.input;
  if (!input.classes.empty()) return input;
  const std::size_t classes = about.network.classes;
  if (rows != nullptr && rows->classes.size() == classes) input.classes = rows->classes;
  while (input.classes.size() < classes)
    input.classes.push_back(std::to_string(input.classes.size()));
  return input;
}

void require_alike(const data::DataSetInfo& a, const std::string& path_a,
                   const data::DataSetInfo& b, const std::string& path_b) {
  require(shape_text(a) == shape_text(b),
          fmt::format("{} has images of {}, {} of {}: they do not belong together", path_a,
                      shape_text(a), path_b, shape_text(b)));
  const auto [one, other] = std::mismatch(a.classes.begin(), a.classes.end(), b.classes.begin(),
                                          b.classes.end(), same_text);
  const auto name = [](auto at, auto end) { return at == end ? "absent" : "'" + *at + "'"; };
  require(one == a.classes.end() && other == b.classes.end(),
          fmt::format("{} and {} have different classes ({} and {} of them): class {} is {} in one "
                      "and {} in the other; they do not belong together",
                      path_a, path_b, a.classes.size(), b.classes.size(), one - a.classes.begin(),
                      name(one, a.classes.end()), name(other, b.classes.end())));
}

}  // namespace lockstep::infer
