#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/model/model.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/resnet.hpp"

namespace lockstep::test {

/// The bytes of a number as these files hold it.
template <class Number>
std::string little(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

inline std::string floats(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += little(value);
  return bytes;
}

/// What an InputError says; "" if there was none.
inline std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// A model of this network with numbers of all kinds, each different.
inline model::Model model_of(const nn::Network& network) {
  model::Model model{{network, {}, {model::Resized::others, 36}}, {}, 4711, {}};
  data::DataSetInfo& input = model.about.input;
  input.height = network.input.height;
  input.width = network.input.width;
  input.channels = network.input.channels;
  for (std::size_t c = 0; c < network.classes; ++c)
    input.classes.push_back("class \"" + std::to_string(c) + "\" \xc3\xa9");
  input.mean.assign(input.channels, 0.4913f);
  input.stddev.assign(input.channels, 1.f / 3);
  std::uint32_t seed = 1;
  const auto layout = nn::arena_layout(network, [](const nn::Tensor& one) { return one.count(); });
  for (const nn::Slice& slice : layout.slices) {
    model::Weight weight{slice.tensor, {}};
    for (std::size_t i = 0; i < slice.tensor.count(); ++i)
      weight.values.push_back(static_cast<float>(static_cast<std::int32_t>(seed *= 2654435761u)) *
                              0x1p-31f);
    weight.values[0] = -0.f;
    weight.values[1] = 1e-42f;
    model.weights.push_back(std::move(weight));
  }
  return model;
}

inline model::Model resnet_model(const std::string& name = "resnet20", std::size_t classes = 10) {
  return model_of(nn::resnet(nn::usual_resnet(name, 0, classes)));
}

/// A whole safetensors file.
inline std::string safetensors_file(const std::string& header, const std::string& values) {
  return little(std::uint64_t{header.size()}) + header + values;
}

}  // namespace lockstep::test
