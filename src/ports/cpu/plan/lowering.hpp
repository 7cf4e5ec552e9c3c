#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/lines.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::cpu {

/// What the CPU backend turns a network into: units of seven kinds.
/// - conv: a convolution, and the sums for the batch norm after it, made while its output is in
/// cache;
/// - point: relu(bn(conv) [+ skip]); its region runs it when more than one unit reads it, otherwise
/// its only reader runs it;
/// - folded: in evaluation, both of these as one: [relu](bn(conv) [+ skip]), with the batch norm in
/// the convolution's weights;
/// - pool: max or average pooling;
/// - head: global average pooling, linear layer and loss;
/// - receive, send: what passes the boundaries of a stage.
enum class UnitKind { conv, point, folded, pool, head, receive, send };

struct Unit {
  UnitKind kind = UnitKind::conv;
  std::string name;      ///< the tape's: the network node's
  std::size_t node = 0;  ///< conv, relu, pooling or linear node; folded: the conv
  std::size_t bn = 0;    ///< conv, folded: the batch-norm node after it
  /// The unit that produces the input; empty: the image. point: the conv in its main branch.
  std::optional<std::size_t> input;
  /// False where the input has no use for a gradient: the image, and what frozen layers made.
  bool differentiates = true;
  /// point, folded: the unit of the other summand: a point in a region, a pool, or a conv (through
  /// its bn); in evaluation a folded or a pool.
  std::optional<std::size_t> skip;
  bool relu = true;          ///< folded: false for a convolution in a skip branch
  bool in_place = false;     ///< folded: its value replaces the skip's, which nothing reads later
  bool looks_again = false;  ///< pool: backward looks again which value was the largest
  bool pad =
      false;  ///< point, folded: the skip is subsampled and zero-padded in channels (option A)
  std::size_t stride = 1;  ///< of that subsampling
  bool in_region = true;   ///< point: it has its own place in its region
  bool kept = true;  ///< point: its value stays in memory; else each reader computes it again from
                     ///< kept values
  /// Units that read this unit's value (a conv's: through its batch norm).
  std::vector<std::size_t> readers;
  /// The region that runs it. In training, batch norm needs all of a conv's output, so each batch
  /// norm starts a new region; inside a region everything runs chunk by chunk in cache.
  std::size_t level = 0;
};

/// The units in network order, with levels. Throws Error naming a node that does not fit these
/// patterns. `bands`: where a chunk is a band of lines, so that a unit whose windows read lines of
/// another chunk has to begin a new region.
std::vector<Unit> lower(const nn::Network& network, bool bands = false);

/// The same network for evaluation, in folded units. No batch norm needs the whole batch there: a
/// new region begins only where the next unit had better not take each chunk at once; `apart`:
/// wherever a value is read.
std::vector<Unit> fold(const nn::Network& network, bool apart = false);

/// Units by level, each level in network order. Points without their own place in a region are left
/// out; their reader runs them.
std::vector<std::vector<std::size_t>> regions(const std::vector<Unit>& units);

/// Some lines of one image's output, and what they read: lines of the input, and lines of padding
/// above and below those.
struct Band {
  std::size_t image, first, count;
  std::size_t in_first = 0, in_count = 0, above = 0, below = 0;
};

Band band_of(const nn::WindowLines& window, std::size_t image, const nn::LineRange& out);

/// What one lane makes where lanes share the rows of a batch: about as many lines as each other
/// lane, in bands of one image.
std::vector<Band> bands_of(const nn::WindowLines& window, std::size_t rows, std::size_t lane,
                           std::size_t lanes);

}  // namespace lockstep::cpu
