#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::test {

/// The law of the update rules over any backend: the first `until` of 50 steps in fp32, with a
/// learning rate that rises and falls, are those of the published formulas, written out in double
/// precision. Biases and batch norms are on the skip list, the first filter begins at 0, the second
/// one never has a gradient, and the last layer has another rate. Muon has also the last layer and
/// the first convolution on it, and no trust ratios.
void check_rules(backend::Backend& backend, const nn::Network& network, int until = 50);

/// zeropower_via_newtonschulz5 of airbench94_muon.py in double precision, without its division by
/// the norm: of a matrix of that many rows, one after the other.
std::vector<double> newton_schulz(const std::vector<double>& matrix, std::size_t rows,
                                  int iterations);

}  // namespace lockstep::test
