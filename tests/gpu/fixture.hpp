#pragma once

#include <memory>
#include <string>

#include "lockstep/backend/backend.hpp"
#include "tests/support/networks/sketch.hpp"

namespace lockstep::test {
using namespace lockstep::backend;

/// The first GPU's backend. Without a GPU it prints why the test is skipped and returns nothing.
std::unique_ptr<Backend> gpu();

/// How far a precision's numbers may be from exact ones, as relative distances.
struct Tolerance {
  double loss = 0, gradient = 0;
};
/// For one of the small networks of tests/support/networks/sketch.hpp.
Tolerance tolerance_of(Precision precision, const nn::Network& network);

/// Whether a program with fused batch norms gives the same bits twice. On a card it does not: cuDNN
/// adds the sums inside convolutions in an order that changes. The emulation has one order.
bool fused_sums_repeat();

/// Fills everything that the next run computes with NaN, so that no earlier result can pass for its
/// result.
void poison(Compiled& compiled);

}  // namespace lockstep::test
