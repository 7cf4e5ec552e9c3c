// What an exchange allocates counts against --memory-limit.
#include <catch2/catch.hpp>

#include <iostream>

#include "lockstep/comm/control.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/reduce/exchange.hpp"
#include "tests/support/harness/sanitized.hpp"
#include "tests/support/laws/solo.hpp"
#include "train/decide/decide.hpp"

using namespace lockstep;

TEST_CASE("what an exchange and an update allocate is counted as a part of the process",
          "[memory]") {
  if (test::sanitized()) {
    std::cout << "SKIPPED: a sanitizer keeps what was freed\n";
    return;
  }
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 16, 10));
  const auto backend = backend::make_cpu_backend({});
  comm::LoneControl control;
  backend::ProgramSpec program;
  program.mean = program.stddev = std::vector<float>(network.input.channels, 0.5f);
  const auto reserved = [&](std::size_t exchange_bytes, std::size_t update_bytes) {
    backend::Recompute recompute;
    recompute.mode = backend::Recompute::Mode::automatic;
    recompute.memory_limit = std::size_t{1} << 30;
    train::count_process(recompute, network, {&program, 1}, *backend,
                         {.update_bytes = update_bytes, .exchange_bytes = exchange_bytes}, control);
    return static_cast<double>(recompute.reserved);
  };
  constexpr double mebibyte = 1 << 20;
  const double without = reserved(0, 0);
  constexpr std::size_t half = std::size_t{512} << 20;
  // The process itself may grow meanwhile, and sums are rounded to 4 MiB.
  CHECK(std::abs(reserved(half, 0) - without - 512 * mebibyte) <= 8 * mebibyte);
  CHECK(std::abs(reserved(half / 2, half / 2) - without - 512 * mebibyte) <= 8 * mebibyte);
  CHECK(reduce::exchange_bytes(reduce::ExchangeKind::exact,
                               {.numbers = nn::numbers(network), .world = 4}) == 0);
}

TEST_CASE("Muon needs memory for its filters, some or all at once, and other rules need none",
          "[memory]") {
  const nn::Network small = nn::resnet(nn::usual_resnet("resnet20", 32, 10)),
                    large = nn::resnet(nn::usual_resnet("resnet50", 224, 1000));
  CHECK(backend::update_bytes(small, optim::Sgd{}) == 0);
  CHECK(backend::update_bytes(large, optim::Lamb{}) == 0);
  std::size_t all = 0;  // all filters together
  for (const nn::Tensor& tensor : nn::tensors(small))
    if (tensor.role == nn::Role::conv_weight)
      all += optim::muon_room(tensor.shape[0], tensor.count() / tensor.shape[0]);
  CHECK(backend::update_bytes(small, optim::Muon{}) == all * sizeof(float));
  CHECK(backend::update_bytes(large, optim::Muon{}) == std::size_t{64} << 20);
}

TEST_CASE("the average and the second moments are counted, once each, also in what is saved",
          "[memory]") {
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet50", 64, 1000));
  const std::size_t weights = nn::numbers(network) * sizeof(float);
  const auto backend = backend::make_cpu_backend({});
  comm::LoneControl control;
  backend::ProgramSpec program;
  program.mean = program.stddev = std::vector<float>(network.input.channels, 0.5f);
  const auto planned = [&](bool average, bool second_moments) {
    backend::Recompute recompute;
    recompute.mode = backend::Recompute::Mode::automatic;
    recompute.memory_limit = std::size_t{1} << 30;
    train::count_process(
        recompute, network, {&program, 1}, *backend,
        {.average = average, .second_moments = second_moments, .checkpoints = true}, control);
    return recompute;
  };
  const double each = static_cast<double>(weights), slack = 8 << 20;
  const auto reserved = [&](bool average, bool second_moments) {
    return static_cast<double>(planned(average, second_moments).reserved);
  };
  if (!test::sanitized()) {  // it keeps what was freed
    const double none = reserved(false, false);
    CHECK(std::abs(reserved(false, true) - none - each) <= slack);
    CHECK(std::abs(reserved(true, true) - none - 2 * each) <= slack);
  }
  const std::size_t saved = planned(false, false).between_steps;
  CHECK(saved > 2 * weights);  // and the largest tensor, which a checkpoint makes plain
  CHECK(planned(false, true).between_steps == saved + weights);
  CHECK(planned(true, true).between_steps == saved + 2 * weights);
}

TEST_CASE("shards take a copy of the gradients for each level that a rank adds, and five buckets",
          "[memory][shards]") {
  const auto bytes = [](std::size_t shards, std::size_t world) {
    return reduce::exchange_bytes(
        reduce::ExchangeKind::exact,
        {.numbers = 1'000'000, .world = world, .shards = shards, .bucket_bytes = 400'000});
  };
  CHECK(bytes(8, 1) == 3 * 4'000'000);
  CHECK(bytes(8, 8) == 5 * 7 * 50'000);
  CHECK(bytes(8, 2) == 2 * 4'000'000);
  CHECK(bytes(64, 8) == 3 * 4'000'000 + 5 * 7 * 50'000);
}
