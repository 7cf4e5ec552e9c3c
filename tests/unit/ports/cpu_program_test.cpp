// Compares the CPU backend with the oracle (double precision, node by node) and the oracle with
// central differences.
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>
#include <numeric>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/parameters.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;

namespace {

std::unique_ptr<Backend> cpu_with(std::size_t threads,
                                  std::size_t chunk_bytes = CpuBackendSpec{}.chunk_bytes) {
  return make_cpu_backend({std::vector<std::vector<int>>(threads), chunk_bytes});
}

void check_gradients(const Case& c, Compiled& compiled,
                     std::map<std::string, std::vector<double>> want, double tolerance) {
  const nn::ArenaLayout& layout = compiled.parameters->layout();
  for (std::size_t s = 0; s < layout.learned_slices; ++s) {
    INFO(c.network.nodes[layout.slices[s].tensor.node].name << ": "
                                                            << layout.slices[s].tensor.name);
    CHECK(distance(compiled.exported(Part::gradients, s), want.at(layout.slices[s].tensor.name)) <=
          tolerance);
  }
}

}  // namespace

TEST_CASE("read as matrices, weights have a row for each output, also of groups", "[cpu]") {
  for (const nn::Network& network : all_sketches()) {
    const auto backend = cpu_with(1);
    const auto made = backend->make_parameters(network, Precision::fp32);
    auto& parameters = dynamic_cast<cpu::CpuParameters&>(*made);
    for (std::size_t s = 0; s < parameters.layout().learned_slices; ++s) {
      const nn::Slice& slice = parameters.layout().slices[s];
      if (slice.tensor.role != nn::Role::conv_weight) continue;
      std::vector<float> plain(slice.tensor.count());
      std::iota(plain.begin(), plain.end(), 1.f);
      parameters.import_slice(Part::weights, s, plain);
      const float* stored = parameters.at(Part::weights, slice.offset);
      const std::size_t columns = plain.size() / slice.tensor.shape[0];
      std::set<std::size_t> outputs;
      INFO(slice.tensor.name);
      REQUIRE(slice.form.rows * slice.form.columns == slice.size);
      for (std::size_t r = 0; r < slice.form.rows; ++r) {
        std::set<float> row;
        for (std::size_t c = 0; c < slice.form.columns; ++c)
          row.insert(stored[slice.form.at(r, c)]);
        row.erase(0);  // padding
        if (row.empty()) continue;
        const auto output = static_cast<std::size_t>(*row.begin() - 1) / columns;
        const auto begin = plain.begin() + static_cast<std::ptrdiff_t>(output * columns);
        CHECK(row == std::set<float>(begin, begin + static_cast<std::ptrdiff_t>(columns)));
        outputs.insert(output);
      }
      CHECK(outputs.size() == slice.tensor.shape[0]);
    }
  }
}

TEST_CASE("the oracle's gradient is the central difference, every node", "[oracle][slow]") {
  for (const nn::Network& network : all_sketches()) {
    Case c = settled_case(network, 3);
    const auto gradient = c.oracle.backward();
    for (const auto& [name, values] : gradient) {
      const std::size_t i = values.size() / 3;
      const double step = 1e-6, before = c.oracle.parameters[name][i];
      c.oracle.parameters[name][i] = before + step;
      const double above = c.oracle.forward(c.images, c.targets);
      c.oracle.parameters[name][i] = before - step;
      const double below = c.oracle.forward(c.images, c.targets);
      c.oracle.parameters[name][i] = before;
      INFO(name);
      CHECK(std::abs((above - below) / (2 * step) - values[i]) <= 1e-7);
    }
  }
}

namespace {

/// Compares a step of a network's rows with the oracle's.
void check_step(const nn::Network& network, std::size_t rows, std::unique_ptr<Backend> backend,
                double tolerance) {
  Case c = settled_case(network, rows);
  Compiled compiled(c, rows, std::move(backend), Precision::fp32);
  CHECK(compiled.run(c, 0, false) / static_cast<double>(rows) == Approx(c.loss).epsilon(1e-6));
  check_gradients(c, compiled, c.oracle.backward(), tolerance);
  const nn::ArenaLayout& layout = compiled.parameters->layout();
  compiled.backend->update_statistics(*compiled.parameters, 1);
  for (std::size_t s = layout.learned_slices; s < layout.slices.size(); ++s) {
    const nn::Tensor& tensor = layout.slices[s].tensor;
    const std::string node = c.network.nodes[tensor.node].name;
    std::vector<double> want = c.oracle.parameters.at(tensor.name);
    const auto& fresh = tensor.role == nn::Role::running_mean ? c.oracle.batch_mean(node)
                                                              : c.oracle.batch_variance(node);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = 0.9 * want[i] + 0.1 * fresh[i];
    INFO(tensor.name);
    CHECK(distance(compiled.exported(Part::weights, s), want) <= 1e-5);
  }
}

}  // namespace

TEST_CASE("the CPU backend's loss, gradients and statistics are the oracle's, every node",
          "[cpu]") {
  const std::size_t threads = GENERATE(1u, 2u, 3u);
  const std::size_t chunk_bytes = GENERATE(1u, 1u << 20);  // the smallest cut images into stripes
  for (const nn::Network& network : all_sketches())
    check_step(network, 3, cpu_with(threads, chunk_bytes), 2e-5);
}

TEST_CASE("with fewer rows than threads, bands of lines give the oracle's", "[cpu][bands]") {
  const std::size_t rows = GENERATE(1u, 2u, 3u), threads = GENERATE(2u, 3u, 4u, 5u, 8u);
  const std::size_t chunk_bytes = GENERATE(1u, 1u << 20);
  if (threads <= rows) return;
  INFO(rows << " rows, " << threads << " threads, chunks of " << chunk_bytes << " bytes");
  for (const nn::Network& network : all_sketches()) {
    INFO(network.nodes.size() << " nodes");
    check_step(network, rows, cpu_with(threads, chunk_bytes), 5e-5);
  }
}

TEST_CASE("two micro-batches accumulate to the sum of their gradients", "[cpu]") {
  Case whole = settled_case(padded_shortcuts(), 6);
  Compiled compiled(whole, 3, cpu_with(2), Precision::fp32);
  std::map<std::string, std::vector<double>> want;
  for (const std::size_t first : {0u, 3u}) {
    Case half = whole;
    half.images.assign(
        whole.images.begin() + static_cast<std::ptrdiff_t>(first * whole.network.input.count()),
        whole.images.begin() +
            static_cast<std::ptrdiff_t>((first + 3) * whole.network.input.count()));
    half.targets.assign(whole.targets.begin() + static_cast<std::ptrdiff_t>(first),
                        whole.targets.begin() + static_cast<std::ptrdiff_t>(first + 3));
    half.oracle.forward(half.images, half.targets);
    for (const auto& [name, values] : half.oracle.backward()) {
      want[name].resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) want[name][i] += values[i] / 2;
    }
    compiled.run(whole, first, first > 0);
  }
  // A wide tolerance: half a batch is less well conditioned than the whole.
  check_gradients(whole, compiled, want, 1e-3);
}

TEST_CASE("bf16 gives the oracle's loss and gradients within its rounding", "[cpu]") {
  if (!has_bf16()) return;
  const std::size_t threads = GENERATE(2u, 4u);  // the last: bands of lines
  for (const nn::Network& network : all_sketches()) {
    Case c = settled_case(network, 3);
    Compiled compiled(c, 3, cpu_with(threads), Precision::bf16);
    CHECK(compiled.run(c, 0, false) / 3 == Approx(c.loss).epsilon(0.02));
    const auto gradients = c.oracle.backward();
    CHECK(gradient_distance(compiled, gradients) <=
          0.3);  // some ReLUs of these small networks flip
  }
}

TEST_CASE("the same run gives the same bits twice", "[cpu]") {
  const Case c(padded_shortcuts(), 7, 5);
  std::uint32_t first = 0;
  for (int round = 0; round < 2; ++round) {
    Compiled compiled(c, 7, cpu_with(2), Precision::fp32);
    compiled.run(c, 0, false);
    const optim::UpdateRule rule{
        .formula = optim::Sgd{.momentum = 0.9f, .nesterov = true},
        .weight_decay = std::vector<float>(compiled.parameters->layout().slices.size(), 1e-4f)};
    compiled.backend->update(*compiled.parameters, rule,
                             {.lr = 0.1f, .gradient_scale = 1, .statistics_share = 1}, 0,
                             compiled.parameters->layout().learned_slices);
    if (round == 0)
      first = compiled.parameters->hash();
    else
      CHECK(compiled.parameters->hash() == first);
  }
}

namespace {

/// The largest difference of a value from `want`, in the largest of those.
double largest_difference(const std::vector<float>& got, const std::vector<double>& want) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference = std::max(difference, std::abs(got[i] - want[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  return difference / largest;
}

}  // namespace

TEST_CASE("bands of whole networks are as near to the oracle as whole images", "[bands]") {
  struct Size {
    const char* model;
    std::size_t side;
  };
  const Size size = GENERATE(Size{"resnet20", 33}, Size{"resnet18", 97}, Size{"resnet50", 65});
  Case c(nn::resnet(nn::usual_resnet(size.model, size.side, 10)), 1, 3);
  const auto want = c.oracle.backward();
  Compiled whole(c, 1, cpu_with(1), Precision::fp32);
  const double near = std::abs(whole.run(c, 0, false) / c.loss - 1);
  const nn::ArenaLayout& layout = whole.parameters->layout();
  for (const std::size_t threads : {2u, 3u, 4u}) {
    INFO(size.model << " at " << size.side << ", " << threads << " threads");
    Compiled bands(c, 1, cpu_with(threads), Precision::fp32);
    CHECK(std::abs(bands.run(c, 0, false) / c.loss - 1) <= std::max(1e-6, 3 * near));
    double of_whole = 0, of_bands = 0;
    for (std::size_t s = 0; s < layout.learned_slices; ++s) {
      const std::vector<double>& exact = want.at(layout.slices[s].tensor.name);
      const double one = largest_difference(whole.exported(Part::gradients, s), exact);
      if (one > 1e-3) continue;  // some ReLU went the other way already with whole images
      of_whole = std::max(of_whole, one);
      of_bands = std::max(of_bands, largest_difference(bands.exported(Part::gradients, s), exact));
    }
    // A ReLU more may go the other way, of one of the 16 pixels of the last maps: 0.06.
    CHECK(of_bands <= std::max(0.1, 3 * of_whole));
  }
}
