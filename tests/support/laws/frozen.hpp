#pragma once

#include "lockstep/backend/backend.hpp"
#include "tests/support/networks/sketch.hpp"

namespace lockstep::test {

/// The laws of frozen layers over any backend, in one precision: at each point at which `network`
/// can be cut, the layers before it being frozen. `tolerance`: of gradients and loss, relative.
void check_frozen(Backend& backend, const nn::Network& network, Precision precision,
                  double tolerance);

}  // namespace lockstep::test
