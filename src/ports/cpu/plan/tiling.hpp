#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/nn/lines.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cpu/plan/lowering.hpp"

namespace lockstep::cpu {

struct Chunk;

// What a tile needs of the lines of others. In forward, windows read lines of values beyond their
// own: of a convolution's raw output, where only its reader makes the ReLU of it. In backward they
// read gradients: of a convolution's output, as its batch norm leaves it; of what a pool has made;
// and of a sum whose skip is subsampled.

/// Lines of an image, of what is between a unit and its neighbours: a tile's own, and what it gets
/// from others.
struct UnitLines {
  nn::LineRange value;            ///< of what it makes
  nn::LineRange gradient;         ///< point: of its value
  nn::LineRange output_gradient;  ///< conv: of its output, below the batch norm
  nn::LineRange input_gradient;   ///< conv, pool: of what it reads
};

/// By unit. REQUIRES: each tile has lines of every map that has windows: nn::most_tiles().
std::vector<UnitLines> lines_of_tile(const nn::Network& network, const std::vector<Unit>& units,
                                     const nn::TilePlace& tile);

/// The window of a unit that has one.
nn::WindowLines window_of(const nn::Network& network, const Unit& unit);

/// The wide lines of a subsampled skip that some deep ones read, and the deep ones that some wide
/// ones get their gradient from. All of an image.
nn::LineRange wide_lines_of(const Unit& unit, const nn::LineRange& deep);
nn::LineRange deep_lines_of(const Unit& unit, const nn::LineRange& wide, std::size_t deep_height);

/// True where a part of a tile's lines, a chunk, reads lines of other tiles in this region.
bool reads_other_tiles(const nn::Network& network, const std::vector<Unit>& units,
                       const std::vector<std::size_t>& region, const nn::TilePlace& tile,
                       const Chunk& chunk);

}  // namespace lockstep::cpu
