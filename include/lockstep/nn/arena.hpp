#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/nn/network.hpp"

namespace lockstep::nn {

/// Where the values of a slice lie if it is read as a matrix with a row for each output: value
/// (r, c) is number r / panel * panel_stride + r % panel + c * column_stride. Columns may be in any
/// order, and rows and columns may be padding. No rows: the slice is no such matrix.
struct MatrixForm {
  std::size_t rows = 0, columns = 0, panel = 1, panel_stride = 0, column_stride = 1;
  constexpr std::size_t at(std::size_t row, std::size_t column) const {
    return row / panel * panel_stride + row % panel + column * column_stride;
  }
};

/// One tensor's place in the arena, in floats. `size` is the physical size that the backend asked
/// for: at least tensor.count(); padding stays zero.
struct Slice {
  Tensor tensor;
  std::size_t offset = 0, size = 0;
  MatrixForm form = {};  ///< of weights: rows one after the other, unless a backend says other
};

/// The order and the places of all tensors in one flat buffer (weights, gradients and momentum have
/// one such buffer each). Learned tensors come in backward order, so that the first bucket to fill
/// is the first that can be sent; running statistics follow. Offsets are multiples of 16 floats (64
/// bytes). Where layers are frozen, the slices of these come last: they have no place in the
/// buffers.
struct ArenaLayout {
  std::vector<Slice> slices;
  std::size_t learned_slices = 0;  ///< slices[0 .. learned_slices) are learned
  std::size_t learned_size = 0;    ///< floats that they span
  std::size_t size = 0;            ///< floats in all, but for the frozen slices
  std::size_t frozen_slices = 0;   ///< at the end; their values never change
  std::size_t frozen_size = 0;     ///< floats that they span
  std::size_t moving_slices() const { return slices.size() - frozen_slices; }

  const Slice& find(const std::string& name) const;  ///< throws Error naming it when absent
};

/// `physical_size` returns how many floats a tensor takes in the backend's own format.
ArenaLayout arena_layout(const Network& network,
                         const std::function<std::size_t(const Tensor&)>& physical_size);

}  // namespace lockstep::nn
