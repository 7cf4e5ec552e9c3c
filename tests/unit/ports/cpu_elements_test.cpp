#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/half.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/element_bytes.hpp"
#include "lockstep/nn/resnet.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using data::Element;

namespace lockstep::test::cpu_elements {
namespace {

constexpr std::size_t side = 7, rows = 3;

nn::Network network_of(std::size_t channels) {
  nn::ResNetSpec spec;
  spec.model = "resnet20";
  spec.classes = 10;
  spec.channels = channels;
  spec.height = spec.width = side;
  return nn::resnet(spec);
}

/// What a program makes of what `load` gives it: the logits and, in training, a gradient.
template <class Load>
std::vector<float> results(const nn::Network& network, const ProgramSpec& spec, Load load) {
  const auto backend = make_cpu_backend({});
  const auto parameters = backend->make_parameters(network, spec.precision);
  const auto& slices = parameters->layout().slices;
  initialise(network, {1}, *parameters);
  const auto program = backend->compile(network, spec, *parameters);
  load(*program);
  for (const TapeStep& step : program->forward()) step.run();
  std::vector<float> values(spec.batch * network.classes);
  program->copy_logits(values);
  for (const TapeStep& step : program->backward(false)) step.run();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].tensor.name != "conv1.weight") continue;
    std::vector<float> gradient(slices[i].tensor.count());
    parameters->export_slice(Part::gradients, i, gradient);
    values.insert(values.end(), gradient.begin(), gradient.end());
  }
  return values;
}

/// What a program makes of elements is what it makes of the values that are to enter.
void check_same_bits(const nn::Network& network, const ProgramSpec& spec,
                     const std::vector<std::uint8_t>& bytes, const std::vector<float>& entered) {
  const std::vector<data::Target> targets(rows, {1, 1, 1});
  const auto got = results(network, spec, [&](Program& program) {
    program.load(
        {.images = bytes.data(), .targets = targets.data(), .rows = rows, .capacity = rows});
  });
  const auto want =
      results(network, spec, [&](Program& program) { program.load_normalised(entered, targets); });
  REQUIRE(got.size() == want.size());
  CHECK(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0);
}

/// Appends a number as an element, and returns the value that it has.
float append(Element element, std::uint32_t bits, std::vector<std::uint8_t>& bytes) {
  const auto put = [&](auto value) {
    const auto raw = std::bit_cast<std::array<std::uint8_t, sizeof value>>(value);
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  };
  const auto half = static_cast<std::uint16_t>(bits);
  switch (element) {
    case Element::u8:
      put(static_cast<std::uint8_t>(bits));
      return static_cast<float>(bits & 255);
    case Element::u16:
      put(half);
      return static_cast<float>(half);
    case Element::i16:
      put(static_cast<std::int16_t>(half));
      return static_cast<float>(static_cast<std::int16_t>(half));
    case Element::f16: {
      const auto finite =
          static_cast<std::uint16_t>((half & 0x7c00) == 0x7c00 ? half & 0x83ff : half);
      put(finite);
      return widen_f16(finite);
    }
    case Element::f32:
      break;
  }
  const float value = 1e7f + static_cast<float>(half % 64);  // large next to its deviation
  put(value);
  return value;
}

}  // namespace

TEST_CASE("every element enters as (v - mean) / deviation, for any number of channels, to the bit",
          "[cpu][elements]") {
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  if (precision == Precision::bf16 && !test::has_bf16()) return;
  for (const Element element : {Element::u16, Element::i16, Element::f16, Element::f32})
    for (const std::size_t channels : {1u, 2u, 5u, 12u, 13u, 18u, 48u, 64u}) {
      CAPTURE(choice_name(element), channels);
      const nn::Network network = network_of(channels);
      ProgramSpec spec;
      spec.batch = rows;
      spec.precision = precision;
      spec.element = element;
      const float middle = element == Element::f32 ? 1e7f : 0,
                  scale = element == Element::f32 ? 20 : 9e3f;
      for (std::size_t c = 0; c < channels; ++c) {
        spec.mean.push_back(middle + static_cast<float>(c) * scale / 100);
        spec.stddev.push_back(scale * (1 + static_cast<float>(c) / 10));
      }
      std::vector<std::uint8_t> bytes;
      std::vector<float> entered;
      for (std::size_t i = 0; i < rows * network.input.count(); ++i) {
        const auto bits = static_cast<std::uint32_t>(draw(2, channels, i, Draw::synth));
        const float value = append(element, bits, bytes);
        const std::size_t c = i % channels;
        entered.push_back((value - spec.mean[c]) * (1 / spec.stddev[c]));
      }
      REQUIRE(bytes.size() == rows * image_bytes(network, spec));
      check_same_bits(network, spec, bytes, entered);
    }
}

TEST_CASE("values that stand for no data enter as exactly 0, of every element", "[cpu][elements]") {
  for (const Element element :
       {Element::u8, Element::u16, Element::i16, Element::f16, Element::f32})
    for (const std::size_t channels : {3u, 13u}) {
      CAPTURE(choice_name(element), channels);
      const bool is_nan = element == Element::f16 || element == Element::f32;
      const nn::Network network = network_of(channels);
      ProgramSpec spec;
      spec.batch = rows;
      spec.element = element;
      spec.no_data = is_nan ? std::numeric_limits<float>::quiet_NaN() : 7;
      spec.mean.assign(channels, element == Element::f32 ? 1e7f : 0.5f);
      spec.stddev.assign(channels, element == Element::u8 ? 0.25f : 9e3f);
      // The same numbers, and in place of those of no data what enters as 0: of floats the mean.
      std::vector<std::uint8_t> bytes;
      std::vector<float> entered;
      for (std::size_t i = 0; i < rows * network.input.count(); ++i) {
        const std::size_t c = i % channels;
        const bool missing = i % 5 == 3;
        float value = 0;
        if (missing && is_nan) {
          element == Element::f16 ? void(append(Element::u16, 0x7e00, bytes))
                                  : data::append_element(element, *spec.no_data, bytes);
        } else {
          const auto bits = static_cast<std::uint32_t>(draw(2, channels, i, Draw::synth));
          value = append(element, missing ? 7 : bits | 8, bytes);
        }
        const auto [a, b] = entry_of(spec, c);
        const float number = element == Element::u8 ? value * a + b : (value - a) * b;
        entered.push_back(missing ? 0 : number);
      }
      const std::vector<data::Target> targets(rows, {1, 1, 1});
      const auto got = results(network, spec, [&](Program& program) {
        program.load(
            {.images = bytes.data(), .targets = targets.data(), .rows = rows, .capacity = rows});
      });
      const auto want = results(
          network, spec, [&](Program& program) { program.load_normalised(entered, targets); });
      for (std::size_t i = 0; i < got.size(); ++i)
        CHECK(std::abs(got[i] - want[i]) <= 1e-4 * (1 + std::abs(want[i])));
      if (element == Element::u8) continue;
      CHECK(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0);
    }
}

TEST_CASE("values enter between their limits and on their curve, of every element, to the bit",
          "[cpu][elements][shaping]") {
  for (const Element element :
       {Element::u8, Element::u16, Element::i16, Element::f16, Element::f32})
    for (const std::size_t channels : {1u, 3u, 12u, 13u})
      for (const auto& [curve, limited] :
           {std::pair{data::Curve::linear, true}, std::pair{data::Curve::log1p, true},
            std::pair{data::Curve::asinh, false}}) {
        CAPTURE(choice_name(element), channels, choice_name(curve), limited);
        const nn::Network network = network_of(channels);
        ProgramSpec spec;
        spec.batch = rows;
        spec.element = element;
        spec.no_data = 7;
        spec.shaping.curve = curve;
        for (std::size_t c = 0; c < channels; ++c) {
          spec.mean.push_back(static_cast<float>(c) / 10);
          spec.stddev.push_back(1 + static_cast<float>(c) / 10);
          if (!limited) continue;
          spec.shaping.low.push_back(static_cast<float>(c));
          spec.shaping.high.push_back(100 + static_cast<float>(c));
        }
        std::vector<std::uint8_t> bytes;
        std::vector<float> entered;
        for (std::size_t i = 0; i < rows * network.input.count(); ++i) {
          const std::size_t c = i % channels;
          const auto bits = static_cast<std::uint32_t>(draw(2, channels, i, Draw::synth));
          const float value = element == Element::f32 ? static_cast<float>(bits % 4000) / 10 - 200
                                                      : append(element, bits, bytes);
          if (element == Element::f32) data::append_element(element, value, bytes);
          const float within =
              !limited ? value : std::clamp(value, spec.shaping.low[c], spec.shaping.high[c]);
          const float number = data::curved(curve, within);
          entered.push_back(value == 7 ? 0 : (number - spec.mean[c]) * (1 / spec.stddev[c]));
        }
        check_same_bits(network, spec, bytes, entered);
      }
}

TEST_CASE("bytes of many channels enter as those of few", "[cpu][elements]") {
  for (const std::size_t channels : {5u, 12u, 13u, 64u}) {
    CAPTURE(channels);
    const nn::Network network = network_of(channels);
    ProgramSpec spec;
    spec.batch = rows;
    for (std::size_t c = 0; c < channels; ++c) {
      spec.mean.push_back(0.01f * static_cast<float>(c));
      spec.stddev.push_back(0.1f + 0.01f * static_cast<float>(c));
    }
    std::vector<std::uint8_t> bytes;
    std::vector<float> entered;
    for (std::size_t i = 0; i < rows * network.input.count(); ++i) {
      const float value =
          append(Element::u8, static_cast<std::uint32_t>(draw(2, 9, i, Draw::synth)), bytes);
      const std::size_t c = i % channels;
      entered.push_back((value / 255 - spec.mean[c]) / spec.stddev[c]);
    }
    const std::vector<data::Target> targets(rows, {1, 1, 1});
    const auto got = results(network, spec, [&](Program& program) {
      program.load(
          {.images = bytes.data(), .targets = targets.data(), .rows = rows, .capacity = rows});
    });
    const auto want = results(network, spec,
                              [&](Program& program) { program.load_normalised(entered, targets); });
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK(std::abs(got[i] - want[i]) <= 1e-3 * (1 + std::abs(want[i])));
  }
}

}  // namespace lockstep::test::cpu_elements
