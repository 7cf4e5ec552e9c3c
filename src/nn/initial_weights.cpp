#include "lockstep/nn/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"

namespace lockstep::nn {
namespace {

// FNV-1a: gives every tensor its own stream of random numbers, whatever comes before it in the
// network.
std::uint64_t hash(const std::string& name) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

void fill_normal(std::uint64_t key, float deviation, std::span<float> values) {
  constexpr double two_pi = 6.283185307179586;
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const Philox bits = philox(key, i / 4, static_cast<std::uint64_t>(Draw::init));
    for (std::size_t pair = 0; pair < 2; ++pair) {
      // Box and Muller 1958; 1 - u is never 0.
      const double radius =
          std::sqrt(-2 * std::log(1 - static_cast<double>(unit(bits.word[2 * pair]))));
      const double angle = two_pi * static_cast<double>(unit(bits.word[2 * pair + 1]));
      const std::size_t at = i + 2 * pair;
      if (at < values.size()) values[at] = deviation * static_cast<float>(radius * std::cos(angle));
      if (at + 1 < values.size())
        values[at + 1] = deviation * static_cast<float>(radius * std::sin(angle));
    }
  }
}

void fill_uniform(std::uint64_t key, float bound, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Philox bits = philox(key, i, static_cast<std::uint64_t>(Draw::init));
    values[i] = bound * (2 * unit(bits.word[0]) - 1);
  }
}

}  // namespace

void initialise(const Network& network, const Tensor& tensor, const InitSpec& spec,
                std::span<float> values) {
  check(values.size() == tensor.count(), tensor.name + ": the buffer does not fit the tensor");
  const Node& node = network.nodes[tensor.node];
  const std::uint64_t key = spec.seed * 0x9E3779B97F4A7C15ull ^ hash(tensor.name);
  switch (tensor.role) {
    case Role::conv_weight: {
      const double fan_out = static_cast<double>(tensor.shape[0] * node.kernel * node.kernel);
      fill_normal(key, static_cast<float>(std::sqrt(2 / fan_out)), values);
      return;
    }
    case Role::linear_weight:
    case Role::linear_bias: {
      const double in = static_cast<double>(network.nodes[node.inputs[0]].shape.channels);
      fill_uniform(key, static_cast<float>(1 / std::sqrt(in)), values);
      return;
    }
    case Role::bn_scale:
      std::fill(values.begin(), values.end(), node.zero_init ? 0.f : 1.f);
      return;
    case Role::bn_shift:
    case Role::running_mean:
      std::fill(values.begin(), values.end(), 0.f);
      return;
    case Role::running_var:
      std::fill(values.begin(), values.end(), 1.f);
      return;
  }
}

}  // namespace lockstep::nn
