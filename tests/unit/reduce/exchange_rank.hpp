#pragma once

// A rank's exchange without a training: gradients are known numbers.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/reduce/exchange.hpp"

namespace lockstep::test {

inline const nn::Network& small_network() {
  static const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 16, 10));
  return network;
}

/// A rank's gradients, between -1 and 1; running statistics are whole numbers.
inline float gradient_of(int rank, std::size_t step, std::size_t i, std::size_t learned) {
  const std::uint64_t bits = draw(5, step, i * 64 + static_cast<std::size_t>(rank), Draw::synth);
  if (i >= learned) return static_cast<float>(bits % 1000);
  return static_cast<float>(static_cast<double>(bits % 2000001) / 1e6 - 1);
}

/// A rank's exchange with what it works on.
struct Rank {
  /// `spec` without its buckets.
  Rank(comm::Communicator& of, reduce::ExchangeSpec spec, std::size_t bucket_bytes,
       const nn::Network& network = small_network(), nn::Freeze freeze = nn::Freeze::none)
      : communicator(of), backend(backend::make_cpu_backend({})) {
    parameters =
        backend->make_parameters(nn::with_frozen(network, freeze), backend::Precision::fp32);
    exchange = reduce::make_exchange(with_buckets(std::move(spec), bucket_bytes),
                                     {communicator, *backend, *parameters});
  }
  std::size_t learned() const { return parameters->layout().learned_size; }
  /// The gradients after a step in which each rank gave gradient_of(rank, step).
  std::vector<float> step(std::size_t step) {
    return step_of(
        [&](std::size_t i) { return gradient_of(communicator.rank(), step, i, learned()); });
  }
  /// The same with gradient(i), i in the arena. `update` is called when they are what it needs.
  template <class Gradient>
  std::vector<float> step_of(const Gradient& gradient, const std::function<void()>& update = {}) {
    float* arena = parameters->device_pointer(backend::Part::gradients);
    exchange->begin();
    const nn::ArenaLayout& layout = parameters->layout();
    const auto slices = std::span(layout.slices).first(layout.moving_slices());
    for (std::size_t s = 0; s < slices.size(); ++s) {
      for (std::size_t i = slices[s].offset; i < slices[s].offset + slices[s].size; ++i)
        arena[i] = gradient(i);
      exchange->ready(s);
      exchange->progress();
    }
    for (std::size_t b = 0; b < exchange->buckets().size(); ++b) exchange->wait(b);
    if (update) update();
    exchange->after_update();
    std::vector<float> sums;
    for (const nn::Slice& slice : slices)
      sums.insert(sums.end(), arena + slice.offset, arena + slice.offset + slice.size);
    return sums;
  }
  reduce::ExchangeSpec with_buckets(reduce::ExchangeSpec spec, std::size_t bytes) const {
    spec.buckets = reduce::plan_buckets(parameters->layout(), bytes);
    return spec;
  }
  comm::Communicator& communicator;
  std::unique_ptr<backend::Backend> backend;
  std::unique_ptr<backend::Parameters> parameters;
  std::unique_ptr<reduce::Exchange> exchange;
};

}  // namespace lockstep::test
