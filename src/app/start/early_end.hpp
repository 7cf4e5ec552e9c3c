#pragma once

#include "app/start/launch.hpp"

namespace lockstep::app {

/// Call it on a rank that ends before Launch::start(), because of its command line. The other ranks
/// may have no such fault and wait for it where ranks meet. So it goes there, for at most
/// `within_s`, and leaves: they notice at once. Does nothing where the ranks have no such place.
void meet_and_leave(const Launch& launch, double within_s);

}  // namespace lockstep::app
