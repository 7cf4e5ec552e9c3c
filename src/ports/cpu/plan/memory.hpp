#pragma once

#include <vector>

namespace lockstep::cpu {

struct Context;
struct ValuePlace;

/// The places of all units' values in evaluation; a unit that is in place has that of its skip.
/// Reserves the memory in `context`, whose regions are known.
std::vector<ValuePlace> place_values(Context& context);

}  // namespace lockstep::cpu
