#pragma once

#include <string>

#include "app/start/launch.hpp"

namespace lockstep::app {

/// For a rank that ends before Launch::start(), because of its command line. The other ranks may
/// have no such fault and wait for it where ranks meet. So it goes there, for at most `within_s`,
/// and leaves: they notice at once. Returns whether rank 0 has reported `what` already, has no such
/// fault, or was not found. Does nothing where the ranks have no such place.
enum class Rank0 { unknown, has_said_it, is_well };
Rank0 meet_and_leave(const Launch& launch, const std::string& what, double within_s);

/// The same for rank 0, which has reported `what`: tells the others when they come.
void tell_and_leave(const Launch& launch, const std::string& what, double within_s);

}  // namespace lockstep::app
