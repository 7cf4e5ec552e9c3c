#include "reduce/exact.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/device/host_stream.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "tests/support/laws/solo.hpp"

using namespace lockstep;
using namespace lockstep::reduce;
using namespace lockstep::device;
using namespace lockstep::comm;

namespace {

/// Doubles the data, as a world of two equal ranks would, and records the calls.
class Mirror final : public Communicator {
 public:
  struct Call {
    float* data;
    std::size_t count;
    std::string name;
  };
  std::vector<Call> calls;

  int rank() const override { return 0; }
  int world() const override { return 2; }
  Stream& network() override { return network_; }
  std::unique_ptr<Communicator> split(std::optional<int>, int, std::string_view) override {
    return nullptr;
  }
  void all_reduce(Elements data, Reduction, std::string_view name, Stream&) override {
    auto* values = static_cast<float*>(data.data);
    calls.push_back({values, data.count, std::string(name)});
    network_.put(std::make_unique<Doubling>(values, data.count));
  }
  void reduce_scatter(Elements, Reduction, std::string_view, Stream&) override {}
  void all_gather(Elements, std::string_view, Stream&) override {}
  void broadcast(Elements, int, std::string_view, Stream&) override {}
  void send(Elements, int, std::string_view, Stream&) override {}
  void receive(Elements, int, std::string_view, Stream&) override {}
  void progress() override { network_.advance(); }

 private:
  class Doubling final : public Pending {
   public:
    Doubling(float* data, std::size_t count) : data_(data), count_(count) {}
    bool advance() override {
      if (--calls_left_ > 0) return false;
      for (std::size_t i = 0; i < count_; ++i) data_[i] *= 2;
      return true;
    }

   private:
    float* data_;
    std::size_t count_;
    int calls_left_ = 3;
  };
  HostStream network_;
};

/// Five slices of 16 floats in buckets of two.
struct Fixture {
  std::vector<float> gradients = std::vector<float>(80, 1);
  HostStream compute;
  Mirror mirror;
  std::vector<Bucket> buckets{{0, 32, 0, 2}, {32, 32, 2, 4}, {64, 16, 4, 5}};
  ExactExchange exchange{{.buckets = buckets}, mirror, compute, gradients.data()};
};

}  // namespace

TEST_CASE("buckets are started in order, each as soon as it and those before it are final",
          "[exchange]") {
  Fixture f;
  f.exchange.ready(4);
  f.exchange.ready(2);
  f.exchange.ready(3);
  f.exchange.ready(1);
  REQUIRE(f.exchange.started() == 0);
  f.exchange.ready(0);
  REQUIRE(f.exchange.started() == 3);
  REQUIRE(f.mirror.calls.size() == 3);
  for (std::size_t b = 0; b < 3; ++b) {
    REQUIRE(f.mirror.calls[b].data == f.gradients.data() + f.buckets[b].offset);
    REQUIRE(f.mirror.calls[b].count == f.buckets[b].size);
  }
}

TEST_CASE("a bucket that was waited for is reduced, later ones may be on their way", "[exchange]") {
  Fixture f;
  for (std::size_t slice = 0; slice < 5; ++slice) f.exchange.ready(slice);
  f.exchange.wait(0);
  REQUIRE(
      std::all_of(f.gradients.begin(), f.gradients.begin() + 32, [](float g) { return g == 2; }));
  f.exchange.wait(1);
  f.exchange.wait(2);
  REQUIRE(std::all_of(f.gradients.begin(), f.gradients.end(), [](float g) { return g == 2; }));
  REQUIRE(f.mirror.calls.size() == 3);
}

TEST_CASE("progress between backward's pieces finishes what has started", "[exchange]") {
  Fixture f;
  f.exchange.ready(0);
  f.exchange.ready(1);
  for (int i = 0; i < 3; ++i) f.exchange.progress();
  REQUIRE(f.gradients[0] == 2);
  REQUIRE(f.gradients[32] == 1);
}

TEST_CASE("any order of slices reduces every bucket once in every step", "[exchange]") {
  Fixture f;
  std::mt19937 random(3);
  std::vector<std::size_t> order(5);
  std::iota(order.begin(), order.end(), 0);
  for (int step = 1; step <= 50; ++step) {
    std::fill(f.gradients.begin(), f.gradients.end(), 1.0f);
    std::shuffle(order.begin(), order.end(), random);
    f.exchange.begin();
    for (const std::size_t slice : order) {
      f.exchange.ready(slice);
      f.exchange.progress();
    }
    for (std::size_t b = 0; b < 3; ++b) f.exchange.wait(b);
    REQUIRE(f.mirror.calls.size() == 3 * static_cast<std::size_t>(step));
    REQUIRE(std::all_of(f.gradients.begin(), f.gradients.end(), [](float g) { return g == 2; }));
  }
}

TEST_CASE("broken promises to the exchange are errors", "[exchange]") {
  Fixture f;
  f.exchange.ready(0);
  REQUIRE_THROWS_AS(f.exchange.ready(0), Error);
  REQUIRE_THROWS_AS(f.exchange.ready(5), Error);
  REQUIRE_THROWS_AS(f.exchange.wait(0), Error);
  f.exchange.ready(1);
  REQUIRE_THROWS_AS(f.exchange.begin(), Error);
  const std::vector<Bucket> gap{{0, 16, 0, 1}, {32, 16, 2, 3}};
  REQUIRE_THROWS_AS(ExactExchange({.buckets = gap}, f.mirror, f.compute, f.gradients.data()),
                    Error);
}

TEST_CASE("each bucket's slices may be updated after it, or all slices after the last bucket",
          "[exchange]") {
  Fixture f;
  for (std::size_t b = 0; b < f.buckets.size(); ++b) {
    CHECK(f.exchange.updates_after(b).first == f.buckets[b].first_slice);
    CHECK(f.exchange.updates_after(b).last == f.buckets[b].last_slice);
  }
  const ExactExchange at_once({.buckets = f.buckets, .update_at_once = true}, f.mirror, f.compute,
                              f.gradients.data());
  for (std::size_t b = 0; b < f.buckets.size(); ++b) {
    const bool last = b + 1 == f.buckets.size();
    CHECK(at_once.updates_after(b).first == 0);
    CHECK(at_once.updates_after(b).last == (last ? 5 : 0));
  }
}

TEST_CASE("the exact exchange has nothing to say, nothing to settle and no state", "[exchange]") {
  Fixture f;
  CHECK(f.exchange.note().empty());
  CHECK(f.exchange.repeats());
  CHECK(f.exchange.largest_gradient() == nullptr);
  const std::vector<float> before = f.gradients;
  { const Settled settled(f.exchange); }
  CHECK((f.gradients == before && f.mirror.calls.empty()));
  comm::LoneControl control;
  const StateOutline outline = f.exchange.outline();
  CHECK((outline.texts.empty() && outline.parts.empty()));
  f.exchange.save(control, [](std::string_view) { FAIL("the exact exchange saved something"); });
  CHECK_NOTHROW(
      load_state(f.exchange, model::CheckpointHeader().exchange, ExchangeState(), "step-7.h5", 7));
  const ExchangeState other{{"error", "bytes"}};
  CHECK_THROWS_WITH(load_state(f.exchange, "exact", other, "step-7.h5", 7),
                    Catch::Contains("step-7.h5: ") && Catch::Contains("'error'"));
}

TEST_CASE(
    "a checkpoint of another exchange is an error that names both and the file, unless one of "
    "the two is exact",
    "[exchange]") {
  Fixture f;
  class Narrow final : public BucketExchange {
   public:
    explicit Narrow(Fixture& f) : BucketExchange({ExchangeKind::bf16, f.buckets}, f.mirror) {}

   private:
    void start(std::size_t) override {}
    void finish(std::size_t) override {}
  } bf16(f);
  CHECK_THROWS_WITH(load_state(bf16, "local", ExchangeState(), "step-7.h5", 7),
                    Catch::Contains("step-7.h5 was written with the exchange 'local'") &&
                        Catch::Contains("this run has 'bf16'"));
  CHECK_THAT(load_state(bf16, "exact", ExchangeState(), "step-7.h5", 7),
             Catch::Contains("(exact, now bf16)"));
  CHECK_THAT(load_state(f.exchange, "local", ExchangeState(), "step-7.h5", 7),
             Catch::Contains("(local, now exact)") && Catch::Contains("begin at their mean"));
}
