// Means of weights, and the running statistics that fit them.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/weight_mean.hpp"
#include "lockstep/nn/initial_weights.hpp"
#include "lockstep/train/statistics.hpp"
#include "tests/support/networks/oracle.hpp"
#include "tests/unit/train/trainer_fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;
using namespace lockstep::train;
using Catch::Matchers::Contains;

namespace {

/// A ResNet with random weights, and statistics that fit nothing.
model::Model random_model(std::uint64_t seed, const std::string& name = "resnet20") {
  model::Model model;
  model.about.network = infer::make_network(given("model = \"" + name + "\""), small_data());
  model.about.input = small_data();
  const auto layout = nn::arena_layout(model.about.network,
                                       [](const nn::Tensor& tensor) { return tensor.count(); });
  for (const nn::Slice& slice : layout.slices) {
    std::vector<float> values(slice.tensor.count());
    nn::initialise(model.about.network, slice.tensor, {seed}, values);
    if (slice.tensor.role == nn::Role::running_mean) values.assign(values.size(), 0.5f);
    model.weights.push_back({slice.tensor, std::move(values)});
  }
  return model;
}

model::Model mean_of_two(const model::Model& a, const model::Model& b) {
  model::WeightMean mean;
  mean.add(a, "a.h5");
  mean.add(b, "b.h5");
  return std::move(mean).take();
}

}  // namespace

TEST_CASE("the mean of equal models has their bits, that of two is their mean", "[average]") {
  const model::Model a = random_model(1), b = random_model(2);
  model::WeightMean same;
  for (int i = 0; i < 3; ++i) same.add(a, "a.h5");
  const model::Model three = std::move(same).take(), two = mean_of_two(a, b);
  for (std::size_t t = 0; t < a.weights.size(); ++t) {
    CHECK(three.weights[t].values == a.weights[t].values);
    for (std::size_t i = 0; i < a.weights[t].values.size(); ++i) {
      const double want = (static_cast<double>(a.weights[t].values[i]) +
                           static_cast<double>(b.weights[t].values[i])) /
                          2;
      REQUIRE(two.weights[t].values[i] == static_cast<float>(want));
    }
  }
}

TEST_CASE("models that differ have no mean, and the error names both files and why", "[average]") {
  const auto refused = [](const model::Model& other, const std::string& why) {
    model::WeightMean mean;
    mean.add(random_model(1), "a.h5");
    CHECK_THROWS_WITH(mean.add(other, "b.h5"), Contains("b.h5") && Contains(why));
  };
  refused(random_model(1, "resnet32"), "resnet32, and the first file has resnet20");
  model::Model other = random_model(1);
  other.about.input.classes[1] = "z";
  refused(other, "'z' as class 1, and the first file has 'b'");
  other = random_model(1);
  other.about.network.classes = 4;
  refused(other, "4 classes, and the first file has 3 classes");
  other = random_model(1);
  other.about.input.mean = {0.25f};
  refused(other, "mean [0.25]");
  other = random_model(1);
  other.about.network.input.height = 16;
  refused(other, "images of 16 x 8 x 1, and the first file has images of 8 x 8 x 1");
  other = random_model(1);
  other.weights[3].tensor.shape[0] = 5;
  refused(other, "'" + other.weights[3].tensor.name + "' of [5");
  other = random_model(1);
  other.weights[2].values[0] = std::numeric_limits<float>::quiet_NaN();
  refused(other, "tensor '" + other.weights[2].tensor.name + "' has a value that is not finite");
}

TEST_CASE("new running statistics are the mean of the batches' in double precision", "[average]") {
  const model::Model model = mean_of_two(random_model(1), random_model(2));
  const auto backend = backend::make_cpu_backend({std::vector<std::vector<int>>(2)});
  constexpr std::size_t batches = 3;
  std::vector<Rows> data(batches);
  for (std::size_t b = 0; b < batches; ++b)
    for (std::size_t i = 0; i < data[b].pixels.size(); ++i) {
      data[b].pixels[i] = static_cast<std::uint8_t>(draw(11 + b, 0, i, Draw::synth));
      data[b].images[i] = (data[b].pixels[i] / 255.0 - 0.5) / 0.25;
    }
  std::size_t asked = 0;
  const WithStatistics got =
      reestimate_statistics(model, *backend,
                            {.program = infer::make_program_spec(given(""), small_data(), few_rows),
                             .batches = batches,
                             .next = [&] { return data[asked++].batch; }});
  CHECK(asked == batches);
  CHECK(got.metrics.rows == batches * few_rows);

  Oracle oracle(model.about.network);
  for (const auto& [tensor, values] : model.weights)
    oracle.parameters[tensor.name].assign(values.begin(), values.end());
  std::map<std::string, std::vector<double>> want;
  for (const Rows& batch : data) {
    oracle.forward(batch.images, batch.targets);
    for (const auto& [tensor, values] : model.weights) {
      if (nn::learned(tensor.role)) continue;
      const std::string& norm = model.about.network.nodes[tensor.node].name;
      const auto& found = tensor.role == nn::Role::running_mean ? oracle.batch_mean(norm)
                                                                : oracle.batch_variance(norm);
      want[tensor.name].resize(found.size());
      for (std::size_t i = 0; i < found.size(); ++i) want[tensor.name][i] += found[i] / batches;
    }
  }
  const auto& slices = got.parameters->layout().slices;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    std::vector<float> plain(slices[s].tensor.count());
    got.parameters->export_slice(backend::Part::weights, s, plain);
    INFO(slices[s].tensor.name);
    if (nn::learned(slices[s].tensor.role)) {
      CHECK(plain == model.weights[s].values);
      continue;
    }
    double apart = 0, size = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      apart += std::pow(plain[i] - want[slices[s].tensor.name][i], 2);
      size += std::pow(want[slices[s].tensor.name][i], 2);
    }
    CHECK(std::sqrt(apart / size) <= 1e-4);
  }
}
