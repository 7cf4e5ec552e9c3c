#pragma once

#include <cstddef>

namespace lockstep {

/// Throws std::bad_alloc where the system does not give that many bytes more now. For libraries
/// that would crash where they get none.
void require_room(std::size_t bytes);

/// The system's pages: 4 KiB on most machines, 64 KiB on many with Arm processors.
std::size_t page_bytes();

}  // namespace lockstep
