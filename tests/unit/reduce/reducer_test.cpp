#include "lockstep/reduce/reducer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/device/host_stream.hpp"

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
  BucketReducer reducer{mirror, compute, gradients.data(), buckets};
};

}  // namespace

TEST_CASE("buckets are started in order, each as soon as it and those before it are final",
          "[reducer]") {
  Fixture f;
  f.reducer.ready(4);
  f.reducer.ready(2);
  f.reducer.ready(3);
  f.reducer.ready(1);
  REQUIRE(f.reducer.started() == 0);
  f.reducer.ready(0);
  REQUIRE(f.reducer.started() == 3);
  REQUIRE(f.mirror.calls.size() == 3);
  for (std::size_t b = 0; b < 3; ++b) {
    REQUIRE(f.mirror.calls[b].data == f.gradients.data() + f.buckets[b].offset);
    REQUIRE(f.mirror.calls[b].count == f.buckets[b].size);
  }
}

TEST_CASE("a bucket that was waited for is reduced, later ones may be on their way", "[reducer]") {
  Fixture f;
  for (std::size_t slice = 0; slice < 5; ++slice) f.reducer.ready(slice);
  f.reducer.wait(0);
  REQUIRE(
      std::all_of(f.gradients.begin(), f.gradients.begin() + 32, [](float g) { return g == 2; }));
  f.reducer.wait(1);
  f.reducer.wait(2);
  REQUIRE(std::all_of(f.gradients.begin(), f.gradients.end(), [](float g) { return g == 2; }));
  REQUIRE(f.mirror.calls.size() == 3);
}

TEST_CASE("progress between backward's pieces finishes what has started", "[reducer]") {
  Fixture f;
  f.reducer.ready(0);
  f.reducer.ready(1);
  for (int i = 0; i < 3; ++i) f.reducer.progress();
  REQUIRE(f.gradients[0] == 2);
  REQUIRE(f.gradients[32] == 1);
}

TEST_CASE("any order of slices reduces every bucket once in every step", "[reducer]") {
  Fixture f;
  std::mt19937 random(3);
  std::vector<std::size_t> order(5);
  std::iota(order.begin(), order.end(), 0);
  for (int step = 1; step <= 50; ++step) {
    std::fill(f.gradients.begin(), f.gradients.end(), 1.0f);
    std::shuffle(order.begin(), order.end(), random);
    f.reducer.begin();
    for (const std::size_t slice : order) {
      f.reducer.ready(slice);
      f.reducer.progress();
    }
    for (std::size_t b = 0; b < 3; ++b) f.reducer.wait(b);
    REQUIRE(f.mirror.calls.size() == 3 * static_cast<std::size_t>(step));
    REQUIRE(std::all_of(f.gradients.begin(), f.gradients.end(), [](float g) { return g == 2; }));
  }
}

TEST_CASE("broken promises to the reducer are errors", "[reducer]") {
  Fixture f;
  f.reducer.ready(0);
  REQUIRE_THROWS_AS(f.reducer.ready(0), Error);
  REQUIRE_THROWS_AS(f.reducer.ready(5), Error);
  REQUIRE_THROWS_AS(f.reducer.wait(0), Error);
  f.reducer.ready(1);
  REQUIRE_THROWS_AS(f.reducer.begin(), Error);
  const std::vector<Bucket> gap{{0, 16, 0, 1}, {32, 16, 2, 3}};
  REQUIRE_THROWS_AS(BucketReducer(f.mirror, f.compute, f.gradients.data(), gap), Error);
}
