#include "lockstep/comm/activity.hpp"

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"

using namespace lockstep;
using comm::Activity;
using comm::ActivityTracker;
using comm::Phase;
using comm::Waiting;

TEST_CASE("a device that runs later than the host says which phase the rank is in", "[activity]") {
  ActivityTracker activity;
  volatile std::uint64_t reached = 0;
  activity.follow(&reached);
  activity.begin_step(12);
  reached = activity.code(Phase::forward);
  activity.enter(Phase::update);
  const Waiting for_others(activity, 3, 4096);
  const Activity forward = activity.now();
  CHECK(forward.step == 12);
  CHECK(forward.phase == Phase::forward);
  CHECK_FALSE(forward.waiting);  // the others wait for it
  reached = activity.code(Phase::backward);
  CHECK(activity.now().phase == Phase::backward);
  CHECK(activity.now().movements > forward.movements);
  reached = activity.code(Phase::update);
  CHECK(activity.now().phase == Phase::reduction);
  CHECK(activity.now().bucket == 3);
  CHECK(activity.now().waiting);
}

TEST_CASE("between the steps the host says where the rank is", "[activity]") {
  ActivityTracker activity;
  volatile std::uint64_t reached = 0;
  activity.follow(&reached);
  activity.begin_step(13);
  reached = activity.code(Phase::forward);
  CHECK(activity.now().phase == Phase::data);
  activity.enter(Phase::checkpoint);
  CHECK(activity.now().phase == Phase::checkpoint);
  activity.begin_step(14);
  activity.enter(Phase::forward);
  activity.enter(Phase::update);
  CHECK(activity.now().phase == Phase::update);  // the device has not started this step
}

TEST_CASE("a wait that fails is what the rank last did, until another wait ends", "[activity]") {
  ActivityTracker activity;
  activity.enter(Phase::update);
  const auto movements = [&] { return activity.now().movements; };
  std::uint64_t in_wait = 0;
  try {
    const Waiting for_others(activity, 5, 64);
    in_wait = movements();
    throw Error("too late");
  } catch (const Error&) {
    CHECK(activity.now().waiting);
    CHECK(activity.now().phase == Phase::reduction);
    CHECK(movements() == in_wait);
  }
  { const Waiting for_others(activity); }
  CHECK_FALSE(activity.now().waiting);
}

namespace {

/// "step 3 forward; step 3 reduction of bucket 1, waiting; ..."
struct Heard final : comm::ActivityObserver {
  void changed(const Activity& now) override {
    text += describe(now) + (now.waiting ? ", waiting; " : "; ");
  }
  std::string text;
};

}  // namespace

TEST_CASE("an observer sees each change of a rank's activity, from any copy, until it is removed",
          "[activity]") {
  const ActivityTracker activity, copy = activity;
  Heard heard;
  activity.add(heard);
  copy.begin_step(3);
  activity.enter(Phase::update);
  { const Waiting for_bucket(copy, 1, 4096); }
  { const Waiting for_ranks(activity); }
  CHECK(heard.text ==
        "step 3, data; step 3, update; step 3, reduction of bucket 1 (4.1 kB), waiting; "
        "step 3, update; step 3, update, waiting; step 3, update; ");
  copy.remove(heard);
  activity.enter(Phase::audit);
  CHECK(heard.text.find("audit") == std::string::npos);
}
