#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::device {

/// A GPU that the driver shows to this process.
struct VisibleGpu {
  std::string name;
  std::string pci_bus_id;  ///< "0000:3B:00.0"
  std::size_t bytes = 0;   ///< of its memory
};

/// What CUDA offers to this process. The index into `gpus` is CUDA's own number of the device,
/// which CUDA_VISIBLE_DEVICES decides.
struct VisibleGpus {
  std::vector<VisibleGpu> gpus;
  std::string absence;    ///< why there are none, for humans; empty when there are some
  std::string libraries;  ///< "CUDA 13.0, driver for 13.0, cuDNN 9.19.0, NCCL 2.28.9"; without a
                          ///< device only the first; empty if the program has no CUDA
};

/// Asks the driver. This starts the driver but makes no context: bind the process before a backend
/// is made. Libraries that are too old count as an absence, which says what was found and what is
/// needed.
VisibleGpus look_at_gpus();

}  // namespace lockstep::device
