#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/rng.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/train/specs.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::test {

// A training of three small rows, for tests of what the trainer makes of a configuration.

constexpr std::size_t small_side = 8, few_rows = 3;

inline data::DataSetInfo small_data() {
  data::DataSetInfo info;
  info.rows = few_rows;
  info.height = info.width = small_side;
  info.channels = 1;
  info.classes = {"a", "b", "c"};
  info.mean = {0.5f};
  info.stddev = {0.25f};
  return info;
}

/// With direct convolutions: the bounds are too narrow for the rounding of Winograd's algorithm.
inline config::Config given(const std::string& toml, int ranks = 1) {
  config::Config config;
  config::apply_toml(config, "batch = 3\nwinograd = \"false\"\n" + toml, "test");
  config.data.train = "rows";
  config::resolve(config, ranks);
  return config;
}

/// Rows of random pixels, in the forms of the trainer and of the oracle.
struct Rows {
  Rows() : pixels(few_rows * small_side * small_side), images(pixels.size()), targets(few_rows) {
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(draw(3, 0, i, Draw::synth));
      images[i] = (pixels[i] / 255.0 - 0.5) / 0.25;
    }
    for (std::size_t i = 0; i < few_rows; ++i) {
      const auto label = static_cast<std::int32_t>(i % 3);
      targets[i] = {label, label, 1};
    }
    batch.images = pixels.data();
    batch.targets = targets.data();
    batch.rows = batch.capacity = few_rows;
  }
  std::vector<std::uint8_t> pixels;
  std::vector<double> images;
  std::vector<data::Target> targets;
  data::Batch batch;
};

/// All weights and running statistics, or their average.
inline std::vector<std::vector<float>> state(train::Trainer& trainer, backend::Part part) {
  std::vector<std::vector<float>> values;
  const nn::ArenaLayout& layout = trainer.parameters().layout();
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    values.emplace_back(layout.slices[s].tensor.count());
    trainer.parameters().export_slice(part, s, values.back());
  }
  return values;
}

}  // namespace lockstep::test
