// Push-sum between ranks that are threads.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "tests/support/networks/sketch.hpp"
#include "tests/support/queues.hpp"
#include "tests/unit/reduce/exchange_rank.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::reduce;
using namespace lockstep::test;

constexpr int crowds[] = {2, 3, 4, 5, 8};
constexpr std::size_t delays[] = {0, 1, 3};
constexpr float rate = 0.2f;

/// What a rank pulls a weight towards: its gradient is the way from there.
double target_of(int rank, std::size_t i) {
  return static_cast<double>(gradient_of(rank, 0, i, ~std::size_t{0}));
}

/// Stochastic gradient push of one weight in double precision (Assran et al. 2019, algorithm 1):
/// each rank sends the halves of x and w to one other rank, and they come `late` steps later.
class PushSum {
 public:
  PushSum(std::size_t world, std::size_t late, double first) : late_(late) {
    const Pair message{first / static_cast<double>(2 + late), 1 / static_cast<double>(2 + late)};
    ranks_.assign(world, {2 * message.x, 2 * message.w});
    coming_.assign(late, std::vector<Pair>(world, message));
  }
  /// gradient(rank, z).
  template <class Gradient>
  void step(const Gradient& gradient) {
    const std::size_t world = ranks_.size();
    std::size_t doublings = 0;
    while ((std::size_t{1} << doublings) < world) ++doublings;
    const std::size_t distance = std::size_t{1} << (steps_++ % doublings);
    std::vector<Pair> sent(world);
    for (std::size_t r = 0; r < world; ++r) {
      ranks_[r].x -= static_cast<double>(rate) * gradient(static_cast<int>(r), of(r));
      ranks_[r] = {ranks_[r].x / 2, ranks_[r].w / 2};
      sent[(r + distance) % world] = ranks_[r];
    }
    coming_.push_back(sent);
    for (std::size_t r = 0; r < world; ++r) {
      ranks_[r].x += coming_.front()[r].x;
      ranks_[r].w += coming_.front()[r].w;
    }
    coming_.pop_front();
  }
  double of(std::size_t rank) const { return ranks_[rank].x / ranks_[rank].w; }
  /// Of all x and all w, also those that are on their way.
  double mean() const {
    Pair all;
    for (const Pair& one : ranks_) all = {all.x + one.x, all.w + one.w};
    for (const auto& step : coming_)
      for (const Pair& one : step) all = {all.x + one.x, all.w + one.w};
    check(std::abs(all.w - static_cast<double>(ranks_.size())) < 1e-9, "w is kept");
    return all.x / all.w;
  }

 private:
  struct Pair {
    double x = 0, w = 0;
  };
  std::size_t late_, steps_ = 0;
  std::vector<Pair> ranks_;
  std::deque<std::vector<Pair>> coming_;  ///< by receiver; the oldest step first
};

struct Gossip : Rank {
  static const nn::Network& sketched() {  // small: what counts is who sends what to whom
    static const nn::Network network = all_sketches().front();
    return network;
  }
  Gossip(comm::Communicator& of, std::size_t late)
      : Rank(of, {.kind = ExchangeKind::gossip, .buckets = {}, .gossip = {.late = late}}, 500,
             sketched()) {
    for (std::size_t i = 0; i < parameters->layout().size; ++i)
      weights()[i] = static_cast<float>(i % 7) / 8;
  }
  float* weights() { return parameters->device_pointer(backend::Part::weights); }
  int number() const { return communicator.rank(); }
  std::size_t world() const { return static_cast<std::size_t>(communicator.world()); }
  /// gradient(i) of a learned weight, which takes a step of SGD; each statistic grows by 1.
  template <class Gradient>
  void descend(const Gradient& gradient) {
    const std::size_t learned_size = learned();
    const auto share = static_cast<float>(world());
    step_of([&](std::size_t i) { return i < learned_size ? gradient(i) / share : 0.f; },
            [&] {
              const float* gradients = parameters->device_pointer(backend::Part::gradients);
              for (const nn::Slice& slice : parameters->layout().slices)
                for (std::size_t i = slice.offset; i < slice.offset + slice.size; ++i)
                  weights()[i] += i < learned_size ? -rate * gradients[i] : 1;
            });
  }
  void pull() {
    descend(
        [&](std::size_t i) { return weights()[i] - static_cast<float>(target_of(number(), i)); });
  }
  void stay() {
    descend([](std::size_t) { return 0.f; });
  }
  std::vector<float> all() {
    return std::vector<float>(weights(), weights() + parameters->layout().size);
  }
};

/// What each rank tells; "" where all is well.
std::vector<std::string> told_by(int world, std::size_t late,
                                 const std::function<std::string(Gossip&)>& story, Queues& queues) {
  return threads_tell(queues, world, false, [&](comm::Communicator& communicator) {
    Gossip rank(communicator, late);
    return story(rank);
  });
}

/// For each number of ranks and of steps that messages are late.
void on_all(const std::function<std::string(Gossip&, std::size_t late)>& story) {
  for (const int world : crowds)
    for (const std::size_t late : delays) {
      INFO(world << " ranks, " << late << " steps late");
      Queues queues;
      CHECK(told_by(
                world, late, [&](Gossip& rank) { return story(rank, late); }, queues) ==
            std::vector<std::string>(static_cast<std::size_t>(world)));
    }
}

}  // namespace

TEST_CASE("gossip is push-sum in double precision, and settles to the mean of all that it keeps",
          "[exchange]") {
  on_all([](Gossip& rank, std::size_t late) -> std::string {
    constexpr std::size_t apart = 29, steps = 23;
    std::vector<std::size_t> places;
    std::vector<PushSum> published;
    for (const nn::Slice& slice : rank.parameters->layout().slices)
      for (std::size_t i = slice.offset; i < slice.offset + slice.size; i += apart) {
        if (i >= rank.learned()) continue;
        places.push_back(i);
        published.emplace_back(rank.world(), late, static_cast<double>(rank.weights()[i]));
      }
    for (std::size_t step = 0; step < steps; ++step) {
      rank.pull();
      for (std::size_t p = 0; p < places.size(); ++p) {
        published[p].step([&](int r, double z) { return z - target_of(r, places[p]); });
        const double got = static_cast<double>(rank.weights()[places[p]]);
        const double want = published[p].of(static_cast<std::size_t>(rank.number()));
        if (!(std::abs(got - want) <= 1e-6))
          return fmt::format("step {}: {} is {}, not {}", step, places[p], got, want);
      }
    }
    const std::vector<float> own = rank.all();
    {
      const Settled settled(*rank.exchange);
      for (std::size_t p = 0; p < places.size(); ++p) {
        const double got = static_cast<double>(rank.weights()[places[p]]);
        if (!(std::abs(got - published[p].mean()) <= 1e-6))
          return fmt::format("settled: {} is {}, not {}", places[p], got, published[p].mean());
      }
    }
    return rank.all() == own ? "" : "not its own again";
  });
}

TEST_CASE(
    "a step changes what stands for all ranks by the mean of their gradients, and sending "
    "changes nothing",
    "[exchange]") {
  on_all([](Gossip& rank, std::size_t) -> std::string {
    const auto settled_weights = [&] {
      const Settled settled(*rank.exchange);
      return rank.all();
    };
    for (int step = 0; step < 4; ++step) rank.pull();
    const std::vector<float> before = settled_weights();
    for (int step = 0; step < 3; ++step)
      rank.descend([&](std::size_t) { return static_cast<float>(rank.number() + 1); });
    rank.stay();
    const std::vector<float> after = settled_weights();
    const float mean = static_cast<float>(rank.world() + 1) / 2;
    for (std::size_t i = 0; i < rank.learned(); i += 97)
      if (!(std::abs(before[i] - 3 * rate * mean - after[i]) <= 2e-6f))
        return fmt::format("{}: from {} to {}", i, before[i], after[i]);
    return "";
  });
}

TEST_CASE("2^n ranks have the exact mean after n steps without gradients, if nothing is late",
          "[exchange]") {
  for (const int world : {2, 4, 8}) {
    INFO(world << " ranks");
    Queues queues;
    const auto told = told_by(
        world, 0,
        [](Gossip& rank) -> std::string {
          for (std::size_t i = 0; i < rank.learned(); ++i)
            rank.weights()[i] = static_cast<float>(i % 100);
          const auto ranks = static_cast<float>(rank.world());
          for (std::size_t i = 0; i < rank.learned(); ++i)
            rank.weights()[i] += static_cast<float>(rank.number());
          for (std::size_t left = rank.world(); left > 1; left /= 2) rank.stay();
          for (std::size_t i = 0; i < rank.learned(); i += 11)
            if (rank.weights()[i] != static_cast<float>(i % 100) + (ranks - 1) / 2)
              return fmt::format("{} is {}", i, rank.weights()[i]);
          return "";
        },
        queues);
    CHECK(told == std::vector<std::string>(static_cast<std::size_t>(world)));
  }
}

TEST_CASE("ranks whose gradients end agree soon, also where messages are late", "[exchange]") {
  on_all([](Gossip& rank, std::size_t late) -> std::string {
    for (int step = 0; step < 5; ++step) rank.pull();
    for (std::size_t step = 0; step < 60 * (1 + late); ++step) rank.stay();
    const std::vector<float> own = rank.all();
    const Settled settled(*rank.exchange);
    for (std::size_t i = 0; i < rank.learned(); i += 97)
      if (!(std::abs(own[i] - rank.weights()[i]) <= 1e-5f))
        return fmt::format("{}: {}, the mean is {}", i, own[i], rank.weights()[i]);
    return "";
  });
}

TEST_CASE("running statistics are mixed, and never lengthened", "[exchange]") {
  on_all([](Gossip& rank, std::size_t late) -> std::string {
    for (int step = 0; step < 40; ++step) rank.stay();
    const std::size_t place = rank.learned();
    // Each step adds 1 to a rank's own; half of what it has is as old as the messages.
    const float grown = rank.weights()[place] - static_cast<float>(place % 7) / 8;
    const float most = 40, least = 40 / (1 + static_cast<float>(late) / 2) - 1;
    return grown <= most && grown >= least ? "" : fmt::format("grew by {}", grown);
  });
}

TEST_CASE("gossip sends the weights once a rank and step", "[exchange]") {
  for (const int world : crowds) {
    Queues queues;
    std::size_t numbers = 0;
    const auto told = told_by(
        world, 1,
        [&](Gossip& rank) -> std::string {
          if (rank.number() == 0) numbers = rank.parameters->layout().size;
          for (int step = 0; step < 3; ++step) rank.stay();
          return "";
        },
        queues);
    CHECK(told == std::vector<std::string>(static_cast<std::size_t>(world)));
    CHECK(queues.bytes == 3 * sizeof(float) * numbers * static_cast<std::size_t>(world));
  }
}

TEST_CASE("a state of gossip of other ranks is left out by name; of other delays it is an error",
          "[exchange]") {
  Queues queues;
  const auto told = told_by(
      2, 1,
      [](Gossip& rank) -> std::string {
        const auto answer = [&](const ExchangeState& parts) -> std::string {
          const ExchangeState texts{{"steps", "5"}};
          try {
            return load_state(*rank.exchange, "gossip", {texts, parts}, "some.h5", 5);
          } catch (const InputError& error) {
            return error.what();
          }
        };
        const std::string other = answer({{"rank-0", "a"}, {"rank-1", "a"}});
        if (other.find("some.h5") != 0 || !other.ends_with("sync.gossip-late), which here is 1"))
          return other;
        const auto learned = [&] {
          std::vector<float> all = rank.all();
          all.resize(rank.parameters->layout().learned_size);
          return all;
        };
        const std::vector<float> before = learned();
        const std::string three = answer({{"rank-0", "a"}, {"rank-1", "a"}, {"rank-2", "a"}});
        if (!three.ends_with("begin at their mean (of 3 ranks, now 2)")) return three;
        // All ranks and messages begin at the weights that are there: no step, no change.
        for (int step = 0; step < 3; ++step) rank.stay();
        return learned() == before ? "" : "the weights have changed";
      },
      queues);
  CHECK(told == std::vector<std::string>(2));
}
