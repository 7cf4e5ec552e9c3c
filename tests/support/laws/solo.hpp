#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/control.hpp"
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

class SoloControl final : public comm::Control {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  void barrier(std::string_view) override {}
  std::vector<std::string> gather(const std::string& mine, std::string_view) override {
    return {mine};
  }
  std::string broadcast(const std::string& mine, std::string_view) override { return mine; }
  std::vector<double> sum(const std::vector<double>& mine, std::string_view) override {
    return mine;
  }
  std::vector<double> max(const std::vector<double>& mine, std::string_view) override {
    return mine;
  }
};

}  // namespace lockstep::test
