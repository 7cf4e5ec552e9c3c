#include "model/formats/readers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "lockstep/backend/answers.hpp"
#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/infer/classifier.hpp"
#include "lockstep/model/network_text.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/initial_weights.hpp"
#include "lockstep/nn/resnet.hpp"
#include "model/formats/stored_tensor.hpp"
#include "tests/support/harness/wire_reader.hpp"
#include "tests/support/networks/onnx_run.hpp"
#include "tests/support/networks/sketch.hpp"
#include "tests/unit/model/network_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;

namespace {

/// From -1 to 1, a pure function of its place.
float noise(std::size_t tensor, std::size_t i) {
  return static_cast<float>(draw(3, tensor, i, Draw::synth) % 2001) / 1000 - 1;
}

/// The network with weights of zero.
Model empty_model(const nn::Network& network) {
  Model model{{network, {}, {.fit = Resized::others, .short_side = 9}}, {}};
  data::DataSetInfo& input = model.about.input;
  input.channels = network.input.channels;
  input.height = network.input.height;
  input.width = network.input.width;
  for (std::size_t c = 0; c < input.channels; ++c) {
    input.mean.push_back(0.4f + 0.05f * static_cast<float>(c));
    input.stddev.push_back(0.25f);
  }
  const auto layout = nn::arena_layout(network, [](const nn::Tensor& one) { return one.count(); });
  for (const nn::Slice& slice : layout.slices)
    model.weights.push_back({slice.tensor, std::vector<float>(slice.tensor.count())});
  return model;
}

/// The same with random weights, and running statistics and scales that are no longer 0 and 1.
Model random_model(const nn::Network& network) {
  Model model = empty_model(network);
  for (std::size_t tensor = 0; tensor < model.weights.size(); ++tensor) {
    Weight& weight = model.weights[tensor];
    nn::initialise(network, weight.tensor, {.seed = 5}, weight.values);
    const nn::Role role = weight.tensor.role;
    if (role != nn::Role::conv_weight && role != nn::Role::linear_weight)
      for (std::size_t i = 0; i < weight.values.size(); ++i)
        weight.values[i] += 0.3f * noise(tensor, i);
  }
  return model;
}

const std::vector<float>& values_of(const Model& model, const std::string& name) {
  for (const Weight& weight : model.weights)
    if (weight.tensor.name == name) return weight.values;
  throw std::runtime_error("no " + name);
}

/// What the CPU backend computes from the same weights.
std::vector<double> logits_of(const Model& model, const std::vector<std::uint8_t>& pixels,
                              std::size_t rows) {
  const auto backend = backend::make_cpu_backend({std::vector<std::vector<int>>(1)});
  const nn::Network& network = model.about.network;
  const auto parameters = backend->make_parameters(network, backend::Precision::fp32);
  put_weights(model, *parameters);
  backend::ProgramSpec spec;
  spec.batch = rows;
  spec.element = model.about.input.element;
  spec.no_data = model.about.input.no_data;
  spec.mean = model.about.input.mean;
  spec.stddev = model.about.input.stddev;
  infer::Inference inference(*backend, network, spec, *parameters);
  data::Batch batch;
  batch.images = pixels.data();
  batch.rows = batch.capacity = rows;
  inference.run(batch);
  std::vector<double> logits;
  for (std::size_t row = 0; row < rows; ++row)
    for (const float logit : inference.logits(row)) logits.push_back(logit);
  return logits;
}

OnnxValue as_input(const Model& model, const std::vector<std::uint8_t>& pixels, std::size_t rows,
                   bool normalised) {
  const auto [channels, height, width] = model.about.network.input;
  if (!normalised)
    return {{rows, height, width, channels}, std::vector<double>(pixels.begin(), pixels.end())};
  OnnxValue value{{rows, channels, height, width}, {}};
  for (std::size_t n = 0; n < rows; ++n)
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t i = 0; i < height * width; ++i) {
        const double pixel = pixels[(n * height * width + i) * channels + c];
        value.values.push_back((pixel / 255 - model.about.input.mean[c]) /
                               model.about.input.stddev[c]);
      }
  return value;
}

bool near(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return false;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= 1e-4 + 1e-4 * std::abs(want[i]))) return false;
  return true;
}

std::map<std::string, std::string> metadata_of(const std::string& file) {
  std::map<std::string, std::string> found;
  for (const WireReader& entry : WireReader(file).messages(14))
    found[entry.text(1)] = entry.text(2);
  return found;
}

/// The shapes that a file gives for values which are no inputs or outputs.
std::map<std::string, std::vector<std::size_t>> inner_shapes(const std::string& file,
                                                             std::size_t rows) {
  std::map<std::string, std::vector<std::size_t>> found;
  for (const WireReader& value : WireReader(file).message(7).messages(13)) {
    std::vector<std::size_t>& shape = found[value.text(1)];
    const WireReader tensor = value.message(2).message(1);
    for (const WireReader& one : tensor.message(2).messages(1))
      shape.push_back(one.has(2) ? rows : one.number(1));
  }
  return found;
}

std::map<std::string, std::size_t> operators_of(const std::string& file) {
  std::map<std::string, std::size_t> found;
  for (const WireReader& node : WireReader(file).message(7).messages(1)) ++found[node.text(4)];
  return found;
}

}  // namespace

TEST_CASE(
    "a network's ONNX file computes what the network does, folded or not, from pixels or "
    "normalised values, and says the shape of each value",
    "[onnx][slow][large]") {
  constexpr std::size_t rows = 2;
  for (const nn::Network& network : all_sketches()) {
    const Model model = random_model(network);
    std::vector<std::uint8_t> pixels(rows * network.input.count());
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::uint8_t>(draw(1, 0, i, Draw::synth));
    const std::vector<double> want = logits_of(model, pixels, rows);
    for (const GraphOptions options : {GraphOptions{false, false}, GraphOptions{false, true},
                                       GraphOptions{true, false}, GraphOptions{true, true}}) {
      CAPTURE(network.name, options.float_input, options.fold);
      const std::string file = onnx_bytes(model, options);
      const auto found = run_onnx(file, as_input(model, pixels, rows, options.float_input));
      const auto shapes = inner_shapes(file, rows);
      for (const auto& [name, shape] : shapes) CHECK(found.at(name).shape == shape);
      // All nodes' but the outputs'.
      CHECK(shapes.size() + 2 == WireReader(file).message(7).messages(1).size());
      CHECK(near(found.at("logits").values, want));
      const OnnxValue& probabilities = found.at("probabilities");
      CHECK(probabilities.shape == std::vector<std::size_t>{rows, network.classes});
      double sum = 0;
      for (const double one : probabilities.values) sum += one;
      CHECK(std::abs(sum - rows) < 1e-9);
    }
  }
}

namespace {

/// Numbers of every kind that the element has, as its bytes and as what they are.
struct ElementImages {
  std::vector<std::uint8_t> bytes;
  std::vector<double> values;
};

template <class Number>
void add_number(ElementImages& to, Number number, double value) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&number);
  to.bytes.insert(to.bytes.end(), bytes, bytes + sizeof number);
  to.values.push_back(value);
}

ElementImages images_of(data::Element element, std::size_t count, bool missing) {
  ElementImages images;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint16_t>(draw(7, 0, i, Draw::synth));
    const bool none = missing && i % 11 == 3, is_nan = missing && i % 11 == 5;
    const float number = none     ? 7.f
                         : is_nan ? std::numeric_limits<float>::quiet_NaN()
                                  : static_cast<float>(bits) / 16 - 1000;
    switch (element) {
      case data::Element::u8:
        add_number(images, static_cast<std::uint8_t>(none ? 7 : bits), none ? 7 : bits & 0xff);
        break;
      case data::Element::u16:
        add_number(images, none ? std::uint16_t{7} : bits, none ? 7 : bits);
        break;
      case data::Element::i16: {
        const auto whole = static_cast<std::int16_t>(none ? 7 : bits);
        add_number(images, whole, whole);
        break;
      }
      case data::Element::f16:
        add_number(images, round_to_f16(number), widen_f16(round_to_f16(number)));
        break;
      case data::Element::f32:
        add_number(images, number, number);
        break;
    }
  }
  return images;
}

}  // namespace

TEST_CASE("an ONNX file takes the network's element, and makes nothing of no data", "[onnx]") {
  constexpr std::size_t rows = 3;
  for (const auto& [element, name] :
       std::vector<std::pair<data::Element, std::string>>{{data::Element::u8, "u8"},
                                                          {data::Element::u16, "u16"},
                                                          {data::Element::i16, "i16"},
                                                          {data::Element::f16, "f16"},
                                                          {data::Element::f32, "f32"}})
    for (const std::optional<float> no_data :
         {std::optional<float>(), std::optional(7.f),
          std::optional(std::numeric_limits<float>::quiet_NaN())}) {
      CAPTURE(name, no_data.value_or(-1));
      Model model = random_model(parse_network(small_network_text));
      data::DataSetInfo& input = model.about.input;
      input.element = element;
      input.no_data = no_data;
      if (element != data::Element::u8)
        for (std::size_t c = 0; c < input.channels; ++c) {
          input.mean[c] = 300 + 10 * static_cast<float>(c);
          input.stddev[c] = 20000;
        }
      const std::size_t count = rows * model.about.network.input.count();
      const ElementImages images = images_of(element, count, no_data.has_value());
      const std::vector<double> want = logits_of(model, images.bytes, rows);
      const auto [channels, height, width] = model.about.network.input;
      const auto found =
          run_onnx(onnx_bytes(model), {{rows, height, width, channels}, images.values});
      CHECK(near(found.at("logits").values, want));
      CHECK(std::ranges::none_of(want, [](double logit) { return std::isnan(logit); }));
    }
}

TEST_CASE("an ONNX file says labels' probabilities, and values in their units", "[onnx]") {
  constexpr std::size_t rows = 2;
  Model model = random_model(parse_network(small_network_text));
  data::DataSetInfo& input = model.about.input;
  const std::vector<std::uint8_t> pixels(rows * model.about.network.input.count(), 90);
  const OnnxValue images = as_input(model, pixels, rows, false);
  for (const data::Task task : {data::Task::labels, data::Task::values}) {
    input.task = task;
    if (task == data::Task::values) {
      input.target_mean = {101325, -0.5f};
      input.target_stddev = {500, 0.001f};
    }
    const auto found = run_onnx(onnx_bytes(model), images);
    const std::vector<double>& outputs = found.at("logits").values;
    const std::string name = backend::name_of_answers(task);
    REQUIRE(found.at(name).shape == std::vector<std::size_t>{rows, 2});
    for (std::size_t row = 0; row < rows; ++row) {
      const std::vector<float> of_row(outputs.begin() + static_cast<std::ptrdiff_t>(2 * row),
                                      outputs.begin() + static_cast<std::ptrdiff_t>(2 * row + 2));
      const std::vector<float> want = backend::answers_of(input, of_row);
      for (std::size_t k = 0; k < 2; ++k)
        CHECK(std::abs(found.at(name).values[2 * row + k] - double{want[k]}) <=
              1e-6 * (1 + std::abs(double{want[k]})));
    }
  }
}

TEST_CASE("an ONNX file says its version, inputs and outputs, with a free number of images",
          "[onnx]") {
  const Model model = random_model(parse_network(small_network_text));
  const std::string file = onnx_bytes(model);
  const WireReader all(file);
  CHECK(all.number(1) == 7);
  CHECK(all.message(8).number(2) == 13);
  CHECK(all.text(2) == "lockstep");
  const WireReader graph = all.message(7);
  CHECK(graph.text(2) == "small");
  const auto shape = [](const WireReader& value, std::uint64_t type) {
    const WireReader tensor = value.message(2).message(1);
    CHECK(tensor.number(1) == type);
    std::string text = value.text(1);
    for (const WireReader& dimension : tensor.message(2).messages(1))
      text += dimension.has(2) ? " " + dimension.text(2) : fmt::format(" {}", dimension.number(1));
    return text;
  };
  CHECK(shape(graph.message(11), 2) == "images N 4 5 3");
  const WireReader bare = WireReader(onnx_bytes(model, {.float_input = true})).message(7);
  CHECK(shape(bare.message(11), 1) == "images N 3 4 5");
  REQUIRE(graph.messages(12).size() == 2);
  CHECK(shape(graph.messages(12)[0], 1) == "logits N 2");
  CHECK(shape(graph.messages(12)[1], 1) == "probabilities N 2");
}

TEST_CASE("an ONNX file's metadata are the notes of other formats and the steps, for each input",
          "[onnx]") {
  Model model = random_model(parse_network(small_network_text));
  model.about.input.classes = {"a \"cat\"", "caf\xE9"};
  auto notes = notes_of(model);
  notes.erase("format");
  notes["steps"] = "0";
  CHECK(metadata_of(onnx_bytes(model)) == notes);
  CHECK(metadata_of(onnx_bytes(model, {.float_input = true, .fold = true})) == notes);
  CHECK(notes.at("crc32c") == checksum_of(model));
}

TEST_CASE("pixels are not normalised by a mean and deviation that are not known", "[onnx]") {
  Model model = random_model(parse_network(small_network_text));
  model.about.input.mean.clear();
  model.about.input.stddev.clear();
  CHECK_THROWS_WITH(onnx_bytes(model), Contains("their mean and deviation are not known"));
  CHECK_NOTHROW(onnx_bytes(model, {.float_input = true}));
}

TEST_CASE("constants of an ONNX file are the network's tensors, bit for bit", "[onnx]") {
  const Model model = random_model(nn::resnet({.model = "resnet20"}));
  const auto found = onnx_constants(onnx_bytes(model));
  for (const Weight& weight : model.weights) {
    CAPTURE(weight.tensor.name);
    const OnnxValue& value = found.at(weight.tensor.name);
    CHECK(value.shape == weight.tensor.shape);
    CHECK(std::equal(value.values.begin(), value.values.end(), weight.values.begin(),
                     weight.values.end()));
  }
}

TEST_CASE("a folded convolution has the batch norm's factor, computed in double precision",
          "[onnx]") {
  const Model model = random_model(parse_network(small_network_text));
  const auto found = onnx_constants(onnx_bytes(model, {.fold = true}));
  CHECK_FALSE(found.contains("bn1.weight"));
  const auto of = [&](const char* name, std::size_t i) -> double {
    return values_of(model, name)[i];
  };
  for (std::size_t c = 0; c < 16; ++c) {
    const double factor = of("bn1.weight", c) / std::sqrt(of("bn1.running_var", c) + 0.5);
    for (std::size_t k = c * 27; k < (c + 1) * 27; ++k)
      CHECK(found.at("conv1.weight").values[k] ==
            static_cast<float>(of("conv1.weight", k) * factor));
    CHECK(found.at("conv1.bias").values[c] ==
          static_cast<float>(of("bn1.bias", c) - of("bn1.running_mean", c) * factor));
  }
}

TEST_CASE("each ResNet has one ONNX operator for each of its nodes, and fewer when folded",
          "[onnx]") {
  for (const char* name : {"resnet20", "resnet110", "resnet18", "resnet50"}) {
    CAPTURE(name);
    const Model model = empty_model(nn::resnet(nn::usual_resnet(name, 64, 10)));
    std::map<nn::Op, std::size_t> nodes;
    for (const nn::Node& node : model.about.network.nodes) ++nodes[node.op];
    auto whole = operators_of(onnx_bytes(model));
    CHECK(whole["Conv"] == nodes[nn::Op::conv]);
    CHECK(whole["BatchNormalization"] == nodes[nn::Op::batch_norm]);
    CHECK(whole["Relu"] == nodes[nn::Op::relu]);
    CHECK(whole["Add"] == nodes[nn::Op::add] + 1);
    CHECK(whole["Slice"] == nodes[nn::Op::subsample_pad]);
    CHECK(whole["Pad"] == nodes[nn::Op::subsample_pad]);
    CHECK(whole["AveragePool"] == nodes[nn::Op::avg_pool]);
    CHECK(whole["MaxPool"] == nodes[nn::Op::max_pool]);
    auto folded = operators_of(onnx_bytes(model, {.fold = true}));
    CHECK(folded["Conv"] == nodes[nn::Op::conv]);
    CHECK(folded["BatchNormalization"] == 0);
  }
}

TEST_CASE("the same model gives the same ONNX bytes", "[onnx]") {
  const nn::Network network = nn::resnet({.model = "resnet20"});
  CHECK(onnx_bytes(random_model(network)) == onnx_bytes(random_model(network)));
}

TEST_CASE("a batch norm that is not alone in reading a convolution is not folded", "[onnx]") {
  const std::string text =
      replaced(replaced(small_network_text, R"({"name":"avgpool")",
                        R"({"name":"sum","op":"add","inputs":["relu","conv1"]},{"name":"avgpool")"),
               R"("inputs":["relu"]},{"name":"fc")", R"("inputs":["sum"]},{"name":"fc")");
  const auto operators =
      operators_of(onnx_bytes(random_model(parse_network(text)), {.fold = true}));
  CHECK(operators.at("BatchNormalization") == 1);
}

TEST_CASE("what ONNX has no form for is an error that names the node", "[onnx]") {
  const std::string text =
      replaced(replaced(small_network_text, R"({"name":"loss")",
                        R"({"name":"last","op":"relu","inputs":["fc"]},{"name":"loss")"),
               R"("inputs":["fc"]}]})", R"("inputs":["last"]}]})");
  CHECK_THROWS_WITH(onnx_bytes(random_model(parse_network(text))),
                    Contains("last: it reads a linear layer"));
  const std::string named =
      replaced(replaced(small_network_text, R"("name":"relu")", R"("name":"logits")"),
               R"("inputs":["relu"])", R"("inputs":["logits"])");
  CHECK_THROWS_WITH(onnx_bytes(random_model(parse_network(named))),
                    Contains("small: two values of an ONNX file would be named logits"));
}
