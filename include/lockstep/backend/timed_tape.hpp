#pragma once

// A network's tape as times alone.

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/backend/pace.hpp"
#include "lockstep/backend/precision.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::backend {

/// Of a device that is not here: what those that train ResNets in 16 bits roughly compute while
/// they move a byte. Only the ratio counts.
constexpr double operations_a_byte = 100;

struct TimedStep {
  std::string name;
  double ms = 0;
  std::vector<std::size_t> final_slices;  ///< of plain_layout(), as TapeStep's
  double weights_ms = 0;  ///< of ms: a convolution's weight gradient, which may come later
};

/// Forward and backward of one micro-batch, then the update of all slices.
struct TimedTape {
  std::vector<TimedStep> forward, backward;
  double update_ms = 0;
  double forward_ms() const;
  double backward_ms() const;
};

/// The arena without padding. All backends have the same slices, in the same order.
nn::ArenaLayout plain_layout(const nn::Network& network);

/// The nodes that a step's name says: "layer1.0.conv1+layer1.0.downsample.0 backward" has two, a
/// step between the nodes none.
std::vector<std::size_t> nodes_of_step(const nn::Network& network, const std::string& name);

/// What a tape is of.
struct TapeOf {
  /// The network of which this is a stage, and whose pace it is; null: it is whole.
  const nn::Network* whole = nullptr;
  /// How a line's row_ms are spread: see nn::WorkSpec.
  double operations_a_byte = backend::operations_a_byte;
};

/// How long each step of the tape takes for `rows` rows at this pace. A line's row_ms are spread
/// over the steps as what nn::cost_of() says they need, its step_ms evenly over their kernels.
/// Throws InputError naming the file where a measured tape is another network's. Pure.
TimedTape time_tape(const nn::Network& network, std::size_t rows, Precision precision,
                    const Pace& pace, const TapeOf& of = {});

/// The shortest time of one training step of `rows` rows at these rates, as the sum over nodes.
double floor_ms(const nn::Network& network, std::size_t rows, Precision precision,
                const GpuRates& rates);

/// Bytes of a stored value.
std::size_t value_bytes(Precision precision);

}  // namespace lockstep::backend
