#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

/// File descriptors: a stranger who connects to a port of this process, or a library in it, may
/// take all that are free. Some are held back, for what must be written even then.

/// Raises the soft limit of open files to the hard one (at most 65536), and holds some descriptors
/// back. Call it once, when the process starts. The usual soft limit (1024) only protects programs
/// that use select().
void prepare_descriptors();

/// The descriptors that were held back are free while one of these lives.
/// **Thread safety:** any thread.
class SpareDescriptors {
 public:
  SpareDescriptors();
  ~SpareDescriptors();
  SpareDescriptors(const SpareDescriptors&) = delete;
  SpareDescriptors& operator=(const SpareDescriptors&) = delete;
};

/// Whether a new descriptor with this number (the system gives the lowest that is free) is one of
/// the last that this process may open: too dear for a stranger.
bool among_the_last(int descriptor);

/// Empty while enough descriptors are free. Else how many are open, and which port most of the
/// connections came to: "254 of 256 file descriptors are open, 215 of them connections to port
/// 1024, which is not lockstep's (Open MPI's?)". `own_port`: lockstep's, or 0.
std::string describe_lack_of_descriptors(std::uint16_t own_port);

}  // namespace lockstep
