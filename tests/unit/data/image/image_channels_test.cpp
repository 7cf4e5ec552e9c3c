#include <catch2/catch.hpp>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/train/specs.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using Catch::Contains;

namespace {

/// The logits of a small residual network for what `load` gives it.
template <class Load>
std::vector<float> logits(std::size_t channels, const ProgramSpec& spec, Load load) {
  nn::ResNetSpec net;
  net.model = "resnet20";
  net.classes = 10;
  net.channels = channels;
  net.height = net.width = 8;
  const nn::Network network = nn::resnet(net);
  const auto backend = make_cpu_backend({});
  const auto parameters = backend->make_parameters(network, Precision::fp32);
  initialise(network, {1}, *parameters);
  const auto program = backend->compile(network, spec, *parameters);
  load(*program);
  for (const TapeStep& step : program->forward()) step.run();
  std::vector<float> values(spec.batch * net.classes);
  program->copy_logits(values);
  return values;
}

}  // namespace

TEST_CASE("images of 1 to 4 channels are normalised channel by channel", "[cpu]") {
  const std::size_t channels = GENERATE(1u, 2u, 3u, 4u);
  ProgramSpec spec;
  spec.batch = 3;
  spec.training = false;
  for (std::size_t c = 0; c < channels; ++c) {
    spec.mean.push_back(0.25f + 0.125f * static_cast<float>(c));
    spec.stddev.push_back(0.125f + 0.25f * static_cast<float>(c));
  }
  std::vector<std::uint8_t> bytes(spec.batch * 8 * 8 * channels);
  std::vector<float> normalised;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(draw(1, 0, i, Draw::synth));
    const std::size_t c = i % channels;
    normalised.push_back((static_cast<float>(bytes[i]) / 255 - spec.mean[c]) / spec.stddev[c]);
  }
  const std::vector<data::Target> targets(spec.batch, {0, 0, 1});
  data::Batch batch;
  batch.images = bytes.data();
  batch.targets = targets.data();
  batch.rows = batch.capacity = spec.batch;

  const auto got = logits(channels, spec, [&](Program& program) { program.load(batch); });
  const auto want = logits(channels, spec,
                           [&](Program& program) { program.load_normalised(normalised, targets); });
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(std::abs(got[i] - want[i]) <= 1e-4 * (1 + std::abs(want[i])));
}

TEST_CASE("other numbers of channels are an error that names the data set", "[cpu]") {
  data::DataSetInfo info;
  for (info.channels = 1; info.channels <= 64; ++info.channels)
    CHECK_NOTHROW(train::require_channels(info, "data/x"));
  for (const std::size_t channels : {0, 65, 127, 65535}) {
    info.channels = channels;
    CHECK_THROWS_WITH(
        train::require_channels(info, "data/x"),
        Contains("data/x has images of " + std::to_string(channels) + " channels; networks take"));
    CHECK_THROWS_AS(train::require_channels(info, "data/x"), InputError);
  }
}
