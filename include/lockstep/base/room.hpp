#pragma once

#include <cstddef>

namespace lockstep {

/// Throws std::bad_alloc where the system does not give that many bytes more now. For libraries
/// that would crash where they get none.
void require_room(std::size_t bytes);

}  // namespace lockstep
