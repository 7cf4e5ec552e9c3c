#pragma once

#include <cstdint>
#include <string>

#include "lockstep/config/config.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::train {

/// Rows of the steps of a training: of all replicas, and how they are cut.
struct StepRows {
  std::uint64_t full = 0, last = 0;  ///< of a step, and of an epoch's last one
  int replicas = 1;
  std::size_t most = 0;  ///< of one replica in one micro-batch
};

/// Why one row is not enough to train batch norms of `network`: "batch norm layer4.0.bn1, ...";
/// empty where it is. Pure.
std::string why_not_one_row(const nn::Network& network);

/// Batch norm takes a mean and a deviation over all rows and pixels of a micro-batch. Throws
/// InputError, saying what would be right, where `trained`, the layers that learn, would have only
/// one value for them: its output is then the same for all images, no gradient passes it, and its
/// running variance fades to 0. Pure.
void require_norm_values(const nn::Network& trained, const StepRows& rows,
                         const config::Config& config);

}  // namespace lockstep::train
