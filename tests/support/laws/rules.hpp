#pragma once

#include "lockstep/backend/backend.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::test {

/// The law of the update rules over any backend: 50 steps in fp32, with a learning rate that rises
/// and falls, are those of the published formulas, written out in double precision. Biases and
/// batch norms are on the skip list, the first filter begins at 0, the second one never has a
/// gradient, and the last layer has another rate.
void check_rules(backend::Backend& backend, const nn::Network& network);

}  // namespace lockstep::test
