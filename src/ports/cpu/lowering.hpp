#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/network.hpp"

namespace lockstep::cpu {

/// What the CPU backend makes of a network: four kinds of unit.
/// - conv: a convolution, and the sums for the batch norm behind it while its output is still in
/// cache;
/// - point: relu(bn(conv) [+ skip]); run by its region when more than one unit reads it, else
/// inside its only reader;
/// - pool: max pooling;
/// - head: global average pooling, linear layer and loss.
enum class UnitKind { conv, point, pool, head };

struct Unit {
  UnitKind kind = UnitKind::conv;
  std::string name;      ///< the tape's: the network node's
  std::size_t node = 0;  ///< conv, relu, max_pool or linear node
  std::size_t bn = 0;    ///< conv: the batch-norm node behind it
  /// Unit that gives the input; none = the image. point: the conv in its main branch.
  std::optional<std::size_t> input;
  /// Of a point: the other summand, a point in a region, a pool, or a conv (through its bn).
  std::optional<std::size_t> skip;
  bool pad = false;        ///< point: the skip is subsampled and zero-padded in channels (option A)
  std::size_t stride = 1;  ///< of that subsampling
  bool in_region = true;   ///< point: it has a place of its own in its region
  bool kept = true;  ///< point: its value stays in memory; else it is computed again from kept
                     ///< values wherever it is read
  /// Units that read this unit's value (a conv's: through its batch norm).
  std::vector<std::size_t> readers;
  /// The region it runs in: batch norm needs all of a conv's output, so each batch norm starts a
  /// new region; inside one, everything runs chunk by chunk in cache.
  std::size_t level = 0;
};

/// The units in network order, with levels. Throws Error naming the node that has no place in these
/// patterns.
std::vector<Unit> lower(const nn::Network& network);

/// Units by level, each level in network order; points without a place in a region are left out
/// (their reader runs them).
std::vector<std::vector<std::size_t>> regions(const std::vector<Unit>& units);

}  // namespace lockstep::cpu
