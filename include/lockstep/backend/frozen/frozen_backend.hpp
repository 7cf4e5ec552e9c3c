#pragma once

// How layers are frozen. The network is cut after them into two parts, each of which is compiled as
// a program. The first one is an evaluation's: it runs forward only, with running statistics, in
// memory without gradients and momentum. The second one trains on what the first one makes, and its
// backward ends with its first layer. The caller sees one backend and one network. The arena is
// that of the second part, so that a trainer, an exchange and an update have nothing to leave out.

#include <cstddef>
#include <memory>

#include "lockstep/backend/backend.hpp"

namespace lockstep::backend {

/// `inner`, for networks whose layers up to the node `last` are frozen (nn::last_frozen()). Its
/// parameters keep the slices of these at the end of the layout. `inner` must outlive it.
std::unique_ptr<Backend> make_frozen_backend(Backend& inner, std::size_t last);

}  // namespace lockstep::backend
