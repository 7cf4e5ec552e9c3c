// Sums of gradients that travel in fewer bits, between ranks that are threads.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/reduce/exchange.hpp"
#include "tests/support/queues.hpp"
#include "tests/unit/reduce/exchange_rank.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::reduce;
using namespace lockstep::test;

/// Per number, as Rank::step() gives them: the true sum, and the sum of magnitudes.
struct Truth {
  std::vector<double> sum, magnitude;
  std::vector<bool> learned;
};
Truth truth_of(const Rank& rank, std::size_t step) {
  Truth truth;
  for (const nn::Slice& slice : rank.parameters->layout().slices)
    for (std::size_t i = slice.offset; i < slice.offset + slice.size; ++i) {
      double sum = 0, magnitude = 0;
      for (int r = 0; r < rank.communicator.world(); ++r) {
        const double one = static_cast<double>(gradient_of(r, step, i, rank.learned()));
        sum += one;
        magnitude += std::abs(one);
      }
      truth.sum.push_back(sum);
      truth.magnitude.push_back(magnitude);
      truth.learned.push_back(i < rank.learned());
    }
  return truth;
}

/// How far int8 may be from a sum in one step: half a unit of each part and of the sum. A part is
/// at most 1 and half a unit of the last step's.
double int8_bound(int world) {
  const double part = (1 + 1.0 / 200) / 127 / 2;
  return world * part + world * (1 + 2.0 / 127) / 127 / 2 + 1e-4;
}

std::vector<std::string> tell(int world, ExchangeKind kind,
                              const std::function<std::string(Rank&)>& story) {
  Queues queues;
  return threads_tell(queues, world, false, [&](comm::Communicator& communicator) {
    Rank rank(communicator, {.kind = kind, .buckets = {}}, 50'000);
    return story(rank);
  });
}

constexpr int worlds[] = {2, 3, 4};

}  // namespace

TEST_CASE("sums of narrow gradients are within their format's rounding, and alike on all ranks",
          "[exchange]") {
  for (const int world : worlds)
    for (const ExchangeKind kind : {ExchangeKind::bf16, ExchangeKind::fp16, ExchangeKind::int8}) {
      INFO(world << " ranks, " << choice_name(kind));
      const auto told = tell(world, kind, [&](Rank& rank) -> std::string {
        const std::vector<float> sums = rank.step(0);
        const Truth truth = truth_of(rank, 0);
        const double unit = kind == ExchangeKind::bf16 ? 1.0 / 256 : 1.0 / 2048;
        std::uint64_t bits = 0;
        for (std::size_t i = 0; i < sums.size(); ++i) {
          const double error = std::abs(static_cast<double>(sums[i]) - truth.sum[i]);
          double bound = kind == ExchangeKind::int8 ? int8_bound(world)
                                                    : 1.01 * unit * 2 * truth.magnitude[i] + 1e-7;
          if (!truth.learned[i]) bound = 0;
          if (!(error <= bound)) return fmt::format("{}: {} from {}", i, sums[i], truth.sum[i]);
          bits = bits * 1099511628211u ^ std::bit_cast<std::uint32_t>(sums[i]);
        }
        return std::to_string(bits);
      });
      CHECK(told[0].find("from") == std::string::npos);
      CHECK(std::all_of(told.begin(), told.end(), [&](const auto& one) { return one == told[0]; }));
    }
}

TEST_CASE("what int8 leaves out comes later: over many steps its sums stay as near as in one",
          "[exchange]") {
  for (const int world : worlds) {
    INFO(world << " ranks");
    const auto told = tell(world, ExchangeKind::int8, [&](Rank& rank) -> std::string {
      std::vector<double> off;
      for (std::size_t step = 0; step < 25; ++step) {
        const std::vector<float> sums = rank.step(step);
        const Truth truth = truth_of(rank, step);
        off.resize(sums.size());
        double largest = 0;
        for (std::size_t i = 0; i < sums.size(); ++i) {
          off[i] += static_cast<double>(sums[i]) - truth.sum[i];
          if (truth.learned[i]) largest = std::max(largest, std::abs(off[i]));
        }
        // The errors are kept in bf16: 1/256 of them is lost in each step.
        const double drift = 1 + static_cast<double>(step) / 256;
        if (!(largest <= int8_bound(world) * drift))
          return fmt::format("step {}: {}", step, largest);
      }
      return "";
    });
    CHECK(told == std::vector<std::string>(static_cast<std::size_t>(world)));
  }
}

TEST_CASE("16 bits move half of the bytes of fp32, int8 a quarter and its scales", "[exchange]") {
  constexpr int world = 4;
  const auto bytes_of_step = [&](ExchangeKind kind) {
    Queues queues;
    const auto told = threads_tell(queues, world, false, [&](comm::Communicator& communicator) {
      Rank rank(communicator, {.kind = kind, .buckets = {}}, 500'000);
      rank.step(0);
      return std::string();
    });
    CHECK(told == std::vector<std::string>(world));
    return static_cast<double>(queues.bytes);
  };
  const auto backend = backend::make_cpu_backend({});
  const auto parameters = backend->make_parameters(small_network(), backend::Precision::fp32);
  const nn::ArenaLayout& layout = parameters->layout();
  const auto learned = static_cast<double>(layout.learned_size);
  const auto statistics = static_cast<double>(layout.size - layout.learned_size);
  // Each number goes to its owner from the others, and back: 2 (world - 1) times.
  const double times = 2 * (world - 1);
  CHECK(bytes_of_step(ExchangeKind::exact) == times * 4 * (learned + statistics));
  CHECK(bytes_of_step(ExchangeKind::bf16) == times * (2 * learned + 4 * statistics));
  CHECK(bytes_of_step(ExchangeKind::fp16) == times * (2 * learned + 4 * statistics));
  const double int8 = bytes_of_step(ExchangeKind::int8) / (times * (learned + 4 * learned / 256));
  CHECK(int8 >= 1);
  CHECK(int8 <= 1.02 + 4 * statistics / learned);
}

TEST_CASE("groups that agree every 8 steps send an eighth of the bytes to others", "[exchange]") {
  const auto bytes_of = [](ExchangeKind kind, bool alone) {
    constexpr int ranks = 4;
    Queues queues;
    const auto told = threads_tell(queues, ranks, false, [&](comm::Communicator& communicator) {
      std::vector<std::size_t> groups(ranks, 0);
      if (alone) groups = {0, 1, 2, 3};
      Rank rank(communicator,
                {.kind = kind, .buckets = {}, .local = {.groups = groups, .every = 8}}, 500'000);
      for (std::size_t step = 0; step < 16; ++step) rank.step(step);
      return std::string();
    });
    CHECK(told == std::vector<std::string>(ranks));
    return static_cast<double>(queues.bytes);
  };
  const double exact = bytes_of(ExchangeKind::exact, false);
  CHECK(bytes_of(ExchangeKind::local, true) == Approx(exact / 8).epsilon(0.01));
  CHECK(bytes_of(ExchangeKind::local, false) == Approx(exact * 9 / 8).epsilon(0.01));
}

TEST_CASE("an exchange saves as many bytes as it says, also of a run that freezes layers",
          "[exchange][freeze]") {
  const auto told_by = [](ExchangeKind kind, nn::Freeze freeze) {
    Queues queues;
    return threads_tell(queues, 2, false, [&](comm::Communicator& communicator) -> std::string {
      Rank rank(communicator,
                {.kind = kind,
                 .buckets = {},
                 .local = {.groups = {0, 1}, .every = 8, .outer_momentum = 0.5f},
                 .power_sgd = {.rank = 2}},
                500'000, small_network(), freeze);
      for (std::size_t step = 0; step < 2; ++step) rank.step(step);
      std::size_t said = 0, saved = 0;
      for (const StatePart& part : rank.exchange->outline().parts) said += part.bytes;
      comm::LoneControl control;
      rank.exchange->save(control, [&](std::string_view bytes) { saved += bytes.size(); });
      const bool right = communicator.rank() == 0 ? said > 0 && saved == said : saved == 0;
      return right ? "" : fmt::format("{} bytes, not {}", saved, said);
    });
  };
  for (const nn::Freeze freeze : {nn::Freeze::none, nn::Freeze::layer2, nn::Freeze::backbone})
    for (const ExchangeKind kind :
         {ExchangeKind::int8, ExchangeKind::power_sgd, ExchangeKind::local, ExchangeKind::gossip}) {
      INFO(choice_name(kind) << ", frozen: " << choice_name(freeze));
      CHECK(told_by(kind, freeze) == std::vector<std::string>(2));
    }
}

TEST_CASE("what an exchange says that it allocates is what it does", "[exchange][memory]") {
  const std::size_t numbers = 25'000'000;
  CHECK(exchange_bytes(ExchangeKind::bf16, {.numbers = numbers, .world = 8}) == 50'000'000);
  CHECK(exchange_bytes(ExchangeKind::local,
                       {.numbers = numbers, .world = 8, .second_moments = true}) -
            exchange_bytes(ExchangeKind::local, {.numbers = numbers, .world = 8}) ==
        100'000'000);
  // What is sent and what comes, and one pair more for each step that messages are late. A pair
  // that is free also keeps weights and momentum aside, but no second moments.
  CHECK(exchange_bytes(ExchangeKind::gossip, {.numbers = numbers, .world = 8, .gossip_late = 0}) ==
        200'000'000);
  CHECK(
      exchange_bytes(ExchangeKind::gossip,
                     {.numbers = numbers, .world = 8, .second_moments = true, .gossip_late = 2}) ==
      700'000'000);
  const double int8 =
      static_cast<double>(exchange_bytes(ExchangeKind::int8, {.numbers = numbers, .world = 8}));
  CHECK(int8 == Approx(25e6 * (2 * (1 + 4.0 / 256) + 2 + 0.25)).epsilon(0.001));
}
