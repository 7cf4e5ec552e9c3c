// Networks come from files, too: any list of nodes that is a network either runs, or is an error
// that names a node.
#include <catch2/catch.hpp>
#include <optional>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "tests/support/networks/evaluation.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

/// Numbers that depend on the seed alone.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::size_t roll(std::size_t sides) { return below(philox(seed_, count_++, 5).word[0], sides); }

 private:
  std::uint64_t seed_, count_ = 0;
};

/// The network with one to three changes to its nodes, where the result is still a network.
std::optional<nn::Network> changed(nn::Network network, Dice& dice) {
  constexpr std::size_t ops = 10;
  for (std::size_t changes = 1 + dice.roll(3); changes > 0; --changes) {
    const std::size_t at = 1 + dice.roll(network.nodes.size() - 1);
    nn::Node& node = network.nodes[at];
    switch (dice.roll(5)) {
      case 0:
        node.inputs[dice.roll(node.inputs.size())] = dice.roll(at);
        break;
      case 1:
        node.op = static_cast<nn::Op>(1 + dice.roll(ops - 2));
        node.inputs.resize(nn::arity(node.op), dice.roll(at));
        break;
      case 2:
        node.kernel = 1 + dice.roll(4);
        node.padding = dice.roll(node.kernel);
        break;
      case 3:
        node.stride = 1 + dice.roll(3);
        break;
      default:
        node.shape.channels = 8 * (1 + dice.roll(4));
    }
  }
  try {
    for (nn::Node& node : network.nodes) node.shape = nn::output_shape(network, node);
    nn::validate(network);
  } catch (const InputError&) {
    return std::nullopt;
  }
  return network;
}

/// Runs forward on the CPU, in training and in evaluation; the greatest distance of their logits
/// from the oracle's.
double distance_of_logits(const Case& c) {
  Compiled compiled(c, 2, make_cpu_backend({}), Precision::fp32);
  compiled.program->set_scalars({0.1f, 0.5f, 1});
  double away = distance(forward_logits(*compiled.program, c), c.oracle.logits());
  for (const Winograd::Mode winograd : {Winograd::Mode::never, Winograd::Mode::everywhere}) {
    Evaluation evaluation(c, 2, {.winograd = winograd});
    away = std::max(away, distance(evaluation.logits(c), c.oracle.logits()));
  }
  return away;
}

}  // namespace

TEST_CASE(
    "a network that was changed anywhere runs on the CPU as the oracle's does, or is an error",
    "[cpu][slow]") {
  std::size_t networks = 0, ran = 0, refused = 0, wrong = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Dice dice(seed);
    const std::vector<nn::Network> from = all_sketches();
    const auto network = changed(from[dice.roll(from.size())], dice);
    if (!network) continue;
    ++networks;
    const Case c(*network, 2, 1);
    try {
      const double away = distance_of_logits(c);
      ++ran;
      if (!(away <= 1e-3)) {
        ++wrong;
        INFO("seed " << seed << ": " << away);
        CHECK(away <= 1e-3);
      }
    } catch (const InputError& error) {
      ++refused;
      CHECK_THAT(error.what(), Catch::Contains("cannot place"));
    }
  }
  CAPTURE(networks, ran, refused, wrong);
  CHECK(ran > 100);
  CHECK(refused > 50);
}
