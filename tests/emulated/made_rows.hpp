#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/data/batch.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::test {

/// A global batch: any bytes, with labels in turn.
class MadeRows {
 public:
  MadeRows(const nn::Network& network, std::size_t rows)
      : bytes_(network.input.count()), pixels_(rows * bytes_), targets_(rows) {
    for (std::size_t i = 0; i < pixels_.size(); ++i)
      pixels_[i] = static_cast<std::uint8_t>(i * 37 % 251);
    for (std::size_t i = 0; i < rows; ++i) {
      const auto label = static_cast<std::int32_t>(i % network.classes);
      targets_[i] = {label, label, 1};
    }
  }
  data::Batch batch(std::size_t first, std::size_t rows, std::size_t index) const {
    data::Batch batch;
    batch.images = pixels_.data() + first * bytes_;
    batch.targets = targets_.data() + first;
    batch.rows = batch.capacity = rows;
    batch.index = index;
    return batch;
  }

 private:
  std::size_t bytes_;
  std::vector<std::uint8_t> pixels_;
  std::vector<data::Target> targets_;
};

}  // namespace lockstep::test
