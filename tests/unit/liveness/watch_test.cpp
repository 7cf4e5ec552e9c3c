#include <pthread.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "lockstep/base/error.hpp"
#include "lockstep/liveness/watch.hpp"
#include "tests/support/harness/pause.hpp"

using namespace lockstep;
using namespace lockstep::device;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

/// Ends when the test says so.
class TestEvent final : public Event {
 public:
  explicit TestEvent(std::shared_ptr<std::atomic<bool>> flag) : flag_(std::move(flag)) {}
  bool done() override { return *flag_; }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

class BrokenEvent final : public Event {
 public:
  bool done() override { throw Error("an illegal memory access was encountered"); }
};

struct Fixture {
  std::atomic<int> aborts = 0, given_up = 0;
  std::atomic<bool> broken = false;
  std::shared_ptr<std::atomic<bool>> flag = std::make_shared<std::atomic<bool>>(false);

  liveness::WatchSpec spec(double deadline_s, double grace_s = 60) {
    liveness::WatchSpec spec;
    spec.deadline_s = deadline_s;
    spec.grace_s = grace_s;
    spec.library_error = [this] { return broken ? "a peer is gone" : ""; };
    spec.find_missing = [](double) { return "rank 3 did not answer"; };
    spec.abort = [this] { ++aborts; };
    spec.give_up = [this](const std::string&) { ++given_up; };
    return spec;
  }
};

}  // namespace

TEST_CASE("collectives that end in time are no concern, nor is a pause between them",
          "[watch][slow][waits]") {
  Fixture fixture;
  liveness::Watch watch(fixture.spec(2));
  for (int i = 0; i < 4; ++i) {
    auto flag = std::make_shared<std::atomic<bool>>(false);
    watch.started("bucket 0", std::make_unique<TestEvent>(flag));
    pause_ms(20);
    *flag = true;
    pause_ms(600);
  }
  pause_ms(2300);
  CHECK_NOTHROW(watch.rethrow());
  CHECK(fixture.aborts == 0);
}

TEST_CASE("a collective that does not end is aborted, and named with its step and the lost rank",
          "[watch]") {
  Fixture fixture;
  liveness::Watch watch(fixture.spec(0.2));
  watch.begin_step(12);
  watch.started("bucket 3", std::make_unique<TestEvent>(fixture.flag));
  watch.started("bucket 4", std::make_unique<TestEvent>(fixture.flag));
  REQUIRE(becomes([&] { return fixture.aborts == 1; }));
  CHECK(watch.failed());
  CHECK_THROWS_WITH(watch.rethrow(),
                    "step 12, bucket 3: no reduction has ended for 0.2 s; rank 3 did not answer");
  CHECK(fixture.given_up == 0);
}

TEST_CASE("an error of the library or of the device comes out at once", "[watch]") {
  Fixture fixture;
  liveness::Watch watch(fixture.spec(3600));
  SECTION("the library's") {
    watch.started("bucket 0", std::make_unique<TestEvent>(fixture.flag));
    fixture.broken = true;
    REQUIRE(becomes([&] { return watch.failed(); }));
    CHECK_THROWS_WITH(watch.rethrow(), Contains("bucket 0: a peer is gone; rank 3"));
  }
  SECTION("the device's") {
    watch.started("bucket 0", std::make_unique<BrokenEvent>());
    REQUIRE(becomes([&] { return watch.failed(); }));
    CHECK_THROWS_WITH(watch.rethrow(), Contains("bucket 0: an illegal memory access"));
  }
  REQUIRE(becomes([&] { return fixture.aborts == 1; }));  // by a separate thread
}

TEST_CASE("a main thread that does not wake after the abort is given up", "[watch]") {
  Fixture fixture;
  liveness::Watch watch(fixture.spec(0.1, 0.1));
  watch.started("bucket 0", std::make_unique<TestEvent>(fixture.flag));
  CHECK(becomes([&] { return fixture.given_up == 1; }));
  REQUIRE(becomes([&] { return fixture.aborts == 1; }));
}

TEST_CASE("where the system gives no thread, the watch gives up after the grace period",
          "[watch]") {
  Fixture fixture;
  liveness::Watch watch(fixture.spec(60, 0.1));
  pthread_attr_t usual, impossible;
  REQUIRE(pthread_getattr_default_np(&usual) == 0);
  REQUIRE(pthread_getattr_default_np(&impossible) == 0);
  REQUIRE(pthread_attr_setstacksize(&impossible, std::size_t{1} << 62) == 0);
  REQUIRE(pthread_setattr_default_np(&impossible) == 0);
  fixture.broken = true;
  CHECK(becomes([&] { return fixture.given_up == 1; }));
  CHECK(fixture.aborts == 0);
  CHECK_THROWS_WITH(watch.rethrow(), Contains("a peer is gone"));
  REQUIRE(pthread_setattr_default_np(&usual) == 0);
}
