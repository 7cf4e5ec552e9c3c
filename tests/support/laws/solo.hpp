#pragma once

#include "lockstep/comm/waits/silent.hpp"
#include "lockstep/device/host_stream.hpp"

namespace lockstep::test {
using namespace lockstep::device;

/// A world of one rank inside this process, for comparison with the real one.
class SoloCommunicator final : public comm::SilentCommunicator {
 public:
  SoloCommunicator() : SilentCommunicator(0, 1, stream_) {}

 private:
  HostStream stream_;
};

}  // namespace lockstep::test
