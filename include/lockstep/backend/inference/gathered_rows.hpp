#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/data/batch.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::backend {

/// Copies of some rows of a batch, one after the other, as a batch for another network.
class GatheredRows {
 public:
  /// `batch`: rows at most.
  GatheredRows(std::size_t batch, std::size_t row_bytes, device::Device& device);
  /// Its images are valid until the next call; it has no targets.
  data::Batch take(const data::Batch& from, const std::vector<std::size_t>& rows);

 private:
  std::size_t batch_, row_bytes_;
  device::PinnedBuffer images_;
};

}  // namespace lockstep::backend
