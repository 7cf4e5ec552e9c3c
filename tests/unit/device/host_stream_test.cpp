#include "lockstep/device/host_stream.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace lockstep;
using namespace lockstep::device;

namespace {

/// Finishes at the given call and writes its name then.
class SlowCount final : public Pending {
 public:
  SlowCount(int name, int calls, std::vector<int>& log) : name_(name), calls_(calls), log_(log) {}
  bool advance() override {
    REQUIRE(calls_ > 0);  // never called again once finished
    if (--calls_ > 0) return false;
    log_.push_back(name_);
    return true;
  }

 private:
  int name_, calls_;
  std::vector<int>& log_;
};

}  // namespace

TEST_CASE("an empty stream has finished", "[host_stream]") {
  HostStream stream;
  REQUIRE(stream.advance());
  REQUIRE(stream.record()->done());
  stream.synchronize();
}

TEST_CASE("an event is done when what was put in earlier has finished, and not earlier",
          "[host_stream]") {
  HostStream stream;
  std::vector<int> log;
  const auto before = stream.record();
  stream.put(std::make_unique<SlowCount>(1, 5, log));
  const auto between = stream.record();
  stream.put(std::make_unique<SlowCount>(2, 9, log));
  const auto after = stream.record();
  REQUIRE(before->done());
  REQUIRE_FALSE(after->done());
  REQUIRE(stream.in_flight() == 2);
  stream.wait(*between);
  REQUIRE(log == std::vector<int>{1});
  REQUIRE_FALSE(after->done());
  stream.wait(*after);
  REQUIRE(log == std::vector<int>{1, 2});
  REQUIRE(stream.in_flight() == 0);
}

TEST_CASE("events come in the stream's order, whichever operation is quicker", "[host_stream]") {
  HostStream stream;
  std::vector<int> log;
  stream.put(std::make_unique<SlowCount>(1, 6, log));
  const auto first = stream.record();
  stream.put(std::make_unique<SlowCount>(2, 1, log));
  const auto second = stream.record();
  stream.advance();
  REQUIRE(log == std::vector<int>{2});
  REQUIRE_FALSE(second->done());
  REQUIRE_FALSE(first->done());
  stream.wait(*second);
  REQUIRE(first->done());
}

TEST_CASE("the newest operation is done when it has finished, whatever is in front of it",
          "[host_stream]") {
  for (const int others : {0, 1, 3, 9}) {
    INFO(others << " in front");
    HostStream stream;
    std::vector<int> log;
    for (int i = 0; i < others; ++i) stream.put(std::make_unique<SlowCount>(100 + i, 1000, log));
    stream.put(std::make_unique<SlowCount>(1, 3, log));
    const auto newest = stream.record_newest();
    stream.put(std::make_unique<SlowCount>(2, 1000, log));
    int polls = 0;
    while (!newest->done()) ++polls;
    CHECK(polls < 10);
    CHECK(log == std::vector<int>{1});
    CHECK(stream.in_flight() == static_cast<std::size_t>(others == 0 ? 1 : others + 2));
    stream.synchronize();
    CHECK(newest->done());
  }
  HostStream empty;
  CHECK(empty.record_newest()->done());
}

TEST_CASE("a stream waits for another stream's event", "[host_stream]") {
  HostStream compute, network;
  std::vector<int> log;
  network.put(std::make_unique<SlowCount>(1, 4, log));
  const auto reduced = network.record();
  compute.wait(*reduced);
  REQUIRE(log == std::vector<int>{1});
}

TEST_CASE("synchronize finishes everything in flight", "[host_stream]") {
  HostStream stream;
  std::vector<int> log;
  for (int i = 0; i < 20; ++i) stream.put(std::make_unique<SlowCount>(i, 1 + i % 3, log));
  stream.synchronize();
  REQUIRE(log.size() == 20);
  REQUIRE(stream.in_flight() == 0);
}
