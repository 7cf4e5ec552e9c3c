#include "lockstep/comm/activity.hpp"

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"

using namespace lockstep;
using comm::Activity;
using comm::Phase;
namespace activity = comm::activity;

namespace {

/// A device that is followed during this object's lifetime.
struct Device {
  Device() { activity::follow(&reached); }
  ~Device() { activity::follow(nullptr); }
  volatile std::uint64_t reached = 0;
};

}  // namespace

TEST_CASE("a device that runs later than the host says which phase the rank is in", "[activity]") {
  Device device;
  activity::begin_step(12);
  device.reached = activity::code(Phase::forward);
  activity::enter(Phase::update);
  const comm::activity::Waiting for_others(3, 4096);
  const Activity forward = activity::now();
  CHECK(forward.step == 12);
  CHECK(forward.phase == Phase::forward);
  CHECK_FALSE(forward.waiting);  // the others wait for it
  device.reached = activity::code(Phase::backward);
  CHECK(activity::now().phase == Phase::backward);
  CHECK(activity::now().movements > forward.movements);
  device.reached = activity::code(Phase::update);
  CHECK(activity::now().phase == Phase::reduction);
  CHECK(activity::now().bucket == 3);
  CHECK(activity::now().waiting);
}

TEST_CASE("between the steps the host says where the rank is", "[activity]") {
  Device device;
  activity::begin_step(13);
  device.reached = activity::code(Phase::forward);
  CHECK(activity::now().phase == Phase::data);
  activity::enter(Phase::checkpoint);
  CHECK(activity::now().phase == Phase::checkpoint);
  activity::begin_step(14);
  activity::enter(Phase::forward);
  activity::enter(Phase::update);
  CHECK(activity::now().phase == Phase::update);  // the device has not started this step
}

TEST_CASE("a wait that fails is what the rank last did, until another wait ends", "[activity]") {
  comm::activity::enter(comm::Phase::update);
  const auto movements = [] { return comm::activity::now().movements; };
  std::uint64_t in_wait = 0;
  try {
    const comm::activity::Waiting for_others(5, 64);
    in_wait = movements();
    throw Error("too late");
  } catch (const Error&) {
    CHECK(comm::activity::now().waiting);
    CHECK(comm::activity::now().phase == comm::Phase::reduction);
    CHECK(movements() == in_wait);
  }
  { const comm::activity::Waiting for_others; }
  CHECK_FALSE(comm::activity::now().waiting);
}
