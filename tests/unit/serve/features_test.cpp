// What a network's last layer reads, as outputs of the network.
#include "lockstep/serve/predict_job.hpp"

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/infer/classifier.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::infer;
using namespace lockstep::test;

namespace {

constexpr std::size_t few_rows = 3;

model::Model model_of(const Case& c, const Compiled& compiled) {
  model::Model model;
  model.about.network = c.network;
  const auto& slices = compiled.parameters->layout().slices;
  for (std::size_t s = 0; s < slices.size(); ++s)
    model.weights.push_back({slices[s].tensor, compiled.exported(Part::weights, s)});
  return model;
}

}  // namespace

TEST_CASE("with features a network says what its last layer reads, and the same of its classes",
          "[cpu][predict]") {
  for (const nn::Network& network : all_sketches()) {
    const Case c(network, few_rows, 5);
    const Compiled compiled(c, few_rows, make_cpu_backend({}), Precision::fp32);
    model::Model model = model_of(c, compiled);
    const std::size_t features = serve::add_features(model), classes = c.network.classes;
    const auto parameters = compiled.backend->make_parameters(model.about.network, Precision::fp32);
    model::put_weights(model, *parameters);
    Inference plain(*compiled.backend, c.network, compiled.program->spec(), *compiled.parameters);
    Inference wide(*compiled.backend, model.about.network, compiled.program->spec(), *parameters);

    std::vector<std::uint8_t> pixels(few_rows * c.network.input.count());
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::uint8_t>(draw(1, 0, i, Draw::synth));
    const data::Batch batch{.images = pixels.data(), .rows = few_rows, .capacity = few_rows};
    plain.run(batch);
    wide.run(batch);
    const std::vector<float>*matrix = nullptr, *bias = nullptr;
    for (const model::Weight& weight : model.weights) {
      if (weight.tensor.role == nn::Role::linear_weight) matrix = &weight.values;
      if (weight.tensor.role == nn::Role::linear_bias) bias = &weight.values;
    }
    REQUIRE((matrix != nullptr && bias != nullptr));
    for (std::size_t row = 0; row < few_rows; ++row) {
      const auto said = wide.logits(row);
      REQUIRE(said.size() == classes + features);
      for (std::size_t k = 0; k < classes; ++k) {
        double logit = (*bias)[k];
        for (std::size_t f = 0; f < features; ++f)
          logit += double{(*matrix)[k * features + f]} * double{said[classes + f]};
        CHECK(said[k] == Approx(logit).epsilon(1e-5).margin(1e-5));
        CHECK(said[k] == Approx(plain.logits(row)[k]).epsilon(1e-5).margin(1e-5));
      }
    }
  }
}
