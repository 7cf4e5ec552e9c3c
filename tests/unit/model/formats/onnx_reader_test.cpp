#include <set>

#include <catch2/catch.hpp>

#include "lockstep/model/network_text.hpp"
#include "model/formats/readers.hpp"
#include "tests/unit/model/formats/formats_fixture.hpp"
#include "tests/unit/model/formats/onnx_fixture.hpp"
#include "tests/unit/model/network_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;

namespace {

TensorFile read(const std::string& file) {
  return read_onnx(std::make_shared<const std::string>(file));
}

std::string refusal(const std::string& file) {
  return error_of([&] {
    for (const StoredTensor& tensor : read(file).tensors) values_of(tensor);
  });
}

std::string refusal_of(const OnnxConstant& constant) { return refusal(onnx_file_of({constant})); }

std::set<std::string> names_in(const std::string& file) {
  std::set<std::string> names;
  for (const StoredTensor& tensor : read(file).tensors) names.insert(tensor.name);
  return names;
}

std::string varints(const std::vector<std::uint64_t>& numbers) {
  std::string bytes;
  for (const std::uint64_t one : numbers) put_varint(bytes, one);
  return bytes;
}

WireMessage constant_of(const std::string& name, std::vector<std::size_t> shape = {1}) {
  std::size_t count = 1;
  for (const std::size_t extent : shape) count *= extent;
  return onnx_constant({name, std::move(shape), floats(std::vector<float>(count, 1.5f))});
}

WireMessage attribute_of(const std::string& name) {
  return WireMessage().text(onnx_attribute::name, name);
}

/// A convolution and a batch norm, or only the convolution.
std::string conv_file(bool norm, std::string_view producer) {
  std::vector<WireMessage> nodes = {node_of("Conv", {"x", "onnx::Conv_193"}, "y")};
  if (norm) nodes.push_back(node_of("BatchNormalization", {"y", "bn1.weight"}, "z"));
  WireMessage notes;
  notes.message(onnx_model::metadata,
                WireMessage().text(onnx_note::key, "width").text(onnx_note::value, "8"));
  return onnx_file(onnx_graph_of(nodes, {constant_of("onnx::Conv_193"), constant_of("bn1.weight")}),
                   producer, notes);
}

}  // namespace

TEST_CASE("constants of an ONNX file are its tensors, as bytes or as numbers of each type",
          "[onnx]") {
  const TensorFile file = read(onnx_file_of({
      {"raw", {2}, floats({1.5f, -0.f})},
      {"floats", {1, 2}, floats({1e-42f, 2}), OnnxType::real32, onnx_tensor::floats},
      {"raw16", {1}, little(std::uint16_t{0x3555}), OnnxType::float16},
      {"half", {2}, varints({0x3555, 0xfbff}), OnnxType::float16, onnx_tensor::int32s},
      {"brain", {2}, varints({0x3eab, 1}), OnnxType::bfloat16, onnx_tensor::int32s},
      {"raw64", {}, little(0.1), OnnxType::real64},
      {"doubles", {1}, little(0.1), OnnxType::real64, onnx_tensor::doubles},
      {"a.num_batches_tracked", {}, varints({4711}), OnnxType::int64, onnx_tensor::int64s},
      {"empty", {2, 0}, ""},
  }));
  CHECK(file.format == "ONNX");
  std::map<std::string, std::vector<float>> values;
  for (const StoredTensor& tensor : file.tensors)
    if (tensor.type->real != nullptr) values[tensor.name] = values_of(tensor);
  CHECK(floats(values["raw"]) == floats({1.5f, -0.f}));
  CHECK(values["floats"] == std::vector<float>{1e-42f, 2});
  CHECK(values["raw16"] == std::vector<float>{0.333251953125f});
  CHECK(values["half"] == std::vector<float>{0.333251953125f, -65504});
  CHECK(values["brain"] == std::vector<float>{0.333984375f, 0x1p-133f});
  CHECK(values["raw64"] == std::vector<float>{0.1f});
  CHECK(values["doubles"] == std::vector<float>{0.1f});
  CHECK(values["empty"].empty());
  CHECK(file.tensors[1].shape == std::vector<std::size_t>{1, 2});
  CHECK(count_in(file.tensors[7]) == 4711);
}

TEST_CASE("an ONNX file's dimensions may be packed", "[onnx]") {
  const WireMessage constant = WireMessage()
                                   .text(onnx_tensor::dimension, varints({2, 1}))
                                   .number(onnx_tensor::type, 1)
                                   .text(onnx_tensor::name, "a")
                                   .text(onnx_tensor::raw, floats({1, 2}));
  const TensorFile file = read(onnx_file(onnx_graph_of({}, {constant})));
  CHECK(file.tensors.at(0).shape == std::vector<std::size_t>{2, 1});
}

TEST_CASE("weights are what layers of an ONNX file read, and what nothing reads", "[onnx]") {
  const WireMessage turned = attribute_of("transB").number(onnx_attribute::whole, 1);
  const std::string file = onnx_file(onnx_graph_of(
      {node_of("Mul", {"images", "input.scale"}, "x"), node_of("Conv", {"x", "conv"}, "a"),
       node_of("BatchNormalization", {"a", "norm"}, "b"),
       node_of("Identity", {"norm"}, "norm.again"), node_of("Slice", {"b", "starts"}, "c"),
       node_of("Mul", {"c", "conv"}, "d"), node_of("Gemm", {"d", "fc"}, "e", {turned})},
      {constant_of("conv"), constant_of("norm"), constant_of("fc"), constant_of("input.scale"),
       constant_of("starts"), constant_of("unread")}));
  CHECK(names_in(file) == std::set<std::string>{"conv", "fc", "norm", "norm.again", "unread"});
  CHECK(refusal(file).empty());
  const std::string none =
      onnx_file(onnx_graph_of({node_of("Mul", {"x", "scale"}, "y")}, {constant_of("scale")}));
  CHECK(refusal(none) == "no convolution, batch norm or linear layer of it reads a constant");
}

TEST_CASE("batch norms that are parts of convolutions are an error that says what to do",
          "[onnx]") {
  CHECK(refusal(conv_file(true, "pytorch")).empty());
  const std::string begin =
      "its batch norms are parts of convolutions (tensor 'onnx::Conv_193'), so that its tensors "
      "are not a ResNet's: export it again with";
  CHECK(refusal(conv_file(false, "pytorch")) ==
        begin +
            " optimize=False (torch.onnx.export with dynamo=False: with "
            "training=torch.onnx.TrainingMode.PRESERVE and do_constant_folding=False)");
  CHECK(refusal(conv_file(false, "lockstep")) == begin + "out --fold");
  const std::string folded = onnx_bytes(resnet_model(), {.float_input = true, .fold = true});
  CHECK_THAT(refusal(folded), Contains("'conv1.weight'") && Contains("without --fold"));
}

TEST_CASE("layers of an ONNX file that compute something else are an error", "[onnx]") {
  const WireMessage epsilon = attribute_of("epsilon").real32(onnx_attribute::real, 0.001f);
  CHECK_THAT(
      refusal(onnx_file(onnx_graph_of({node_of("BatchNormalization", {"x", "a"}, "bn1", {epsilon})},
                                      {constant_of("a")}))),
      Contains("its batch norm 'bn1' adds 0.001 to the variance, and not 1e-05"));
  CHECK(refusal(onnx_file(onnx_graph_of({node_of("Gemm", {"x", "fc.weight"}, "y")},
                                        {constant_of("fc.weight")}))) ==
        "tensor 'fc.weight' has a column for each output, and not a row");
}

TEST_CASE("an ONNX file of a ResNet's tensors that is another network is an error", "[onnx]") {
  const auto with = [](const std::string& op, const std::string& weight,
                       const std::vector<WireMessage>& attributes) {
    return refusal(onnx_file(onnx_graph_of({node_of(op, {"x", weight}, "y", attributes),
                                            node_of("BatchNormalization", {"y", "a"}, "z")},
                                           {constant_of(weight), constant_of("a")})));
  };
  const auto wholes = [](const std::string& name, std::uint64_t value) {
    return attribute_of(name)
        .number(onnx_attribute::wholes, value)
        .number(onnx_attribute::wholes, value);
  };
  const std::string first = "layer2.0.conv1.weight", third = "layer2.0.conv3.weight";
  CHECK(with("Conv", third, {wholes("dilations", 1)}).empty());
  CHECK(with("Conv", third, {wholes("dilations", 2)}) ==
        "its convolution 'y' has a dilation of 2, and not 1");
  CHECK(with("Conv", third, {attribute_of("dilations").text(onnx_attribute::wholes, "\2\2")}) ==
        "its convolution 'y' has a dilation of 2, and not 1");
  CHECK(with("Conv", first, {wholes("kernel_shape", 3), wholes("strides", 2)}).empty());
  CHECK(with("Conv", first, {wholes("kernel_shape", 1), wholes("strides", 1)}).empty());
  CHECK(with("Conv", first, {wholes("kernel_shape", 1), wholes("strides", 2)}) ==
        "the convolution of tensor 'layer2.0.conv1.weight' has a stride of 2, and not 1: it is an "
        "older kind of ResNet");
  const WireMessage turned = attribute_of("transB").number(onnx_attribute::whole, 1);
  CHECK(with("Gemm", "fc.weight", {turned, attribute_of("alpha").real32(onnx_attribute::real, 1)})
            .empty());
  CHECK(
      with("Gemm", "fc.weight", {turned, attribute_of("alpha").real32(onnx_attribute::real, 2)}) ==
      "the layer of tensor 'fc.weight' has alpha = 2, and not 1");
  CHECK(with("LeakyRelu", "slope", {}) ==
        "its node 'y' is a LeakyRelu, which no ResNet of lockstep's has");
}

TEST_CASE("numbers of an ONNX file that cannot be right are an error that names the tensor",
          "[onnx]") {
  const std::string two = floats({1, 2});
  CHECK(refusal_of({"a", {2}, two}).empty());
  CHECK(refusal_of({"a", {3}, two}) ==
        "tensor 'a': it is of F32 and shape [3], but has 8 bytes of numbers");
  CHECK_THAT(refusal_of({"a", {2}, two + "1"}),
             Contains("'a': it is of F32 and shape [2], but has 9 bytes"));
  CHECK_THAT(refusal_of({"a", {2}, two, OnnxType::real64}),
             Contains("'a': it is of F64 and shape [2]"));
  CHECK_THAT(refusal_of({"a", {1, 1, 1, 1, 1, 1, 1, 1, 1}, two}),
             Contains("'a': it has more than 8 dimensions"));
  CHECK(refusal_of({"a", {static_cast<std::size_t>(-1)}, two}) ==
        "tensor 'a': it has a dimension of -1");
  CHECK_THAT(refusal_of({"a", {std::size_t{1} << 32, std::size_t{1} << 32, 4}, two}),
             Contains("'a'") && Contains("too many numbers"));
  CHECK(refusal_of({"a\n", {2}, two, static_cast<OnnxType>(8)}) ==
        "tensor 'a?': it is of an unknown type 8");
  CHECK(refusal_of({"a", {2}, two, OnnxType::float16, onnx_tensor::floats}) ==
        "tensor 'a': it has its F16 in field 4, where they are not read");
  CHECK(refusal_of({"a", {1}, varints({0x10000}), OnnxType::float16, onnx_tensor::int32s}) ==
        "tensor 'a': it has a number of more than 2 bytes");
  CHECK_THAT(refusal_of({"a", {2}, varints({1}), OnnxType::float16, onnx_tensor::int32s}),
             Contains("'a': it is of F16 and shape [2], but has 1 bytes"));
  CHECK(refusal_of({"a", {1}, varints({1}) + "\x80", OnnxType::bfloat16, onnx_tensor::int32s}) ==
        "tensor 'a': it is cut off within a number");
  CHECK(refusal_of({"a", {1}, "12345678", OnnxType::uint64}) ==
        "tensor 'a' holds U64, which are no floats");
  CHECK(refusal_of({"", {2}, two}) == "its constant 1 has no name");
  CHECK(refusal(onnx_file_of({{"a", {2}, two}, {"a", {2}, two}})) ==
        "two of its tensors are named 'a'");
}

TEST_CASE("a tensor that an ONNX file has in pieces or in another file is an error", "[onnx]") {
  const auto refused = [](const WireMessage& more) {
    WireMessage constant = constant_of("a");
    const std::string bytes = constant.bytes() + more.bytes();
    return refusal(onnx_file(WireMessage().text(onnx_graph::constant, bytes).bytes()));
  };
  CHECK(refused({}).empty());
  const std::string cut = constant_of("a").bytes();
  CHECK(refusal(onnx_file(
            WireMessage().text(onnx_graph::constant, cut.substr(0, cut.size() - 1)).bytes())) ==
        "its constant 1, 'a': it is cut off: its field 9 has 4 bytes, of which 3 are there");
  CHECK(refused(WireMessage().text(onnx_tensor::floats, floats({1}))) ==
        "tensor 'a': it has its numbers in pieces, which are not read");
  CHECK(refused(WireMessage().text(onnx_tensor::name, "b")) ==
        "its constant 1, 'a': its field 8 is there twice");
  CHECK(refused(WireMessage().number(onnx_tensor::type, 1)) == "tensor 'a': it has two types");
  CHECK_THAT(refused(WireMessage().number(onnx_tensor::raw, 1)), Contains("in pieces"));
  CHECK(refused(WireMessage().real32(onnx_tensor::dimension, 1)) ==
        "tensor 'a': its field 1 is of another type");
  const WireMessage place =
      WireMessage().text(onnx_note::key, "location").text(onnx_note::value, "weights.data");
  CHECK(
      refused(WireMessage().message(onnx_tensor::external, place).number(onnx_tensor::place, 1)) ==
      "tensor 'a': it has its numbers in another file, 'weights.data': write all into one file "
      "(with "
      "torch.onnx.export, external_data=False)");
  CHECK_THAT(refused(WireMessage().number(onnx_tensor::place, 1)), Contains("in another file, ''"));
  CHECK(refused(WireMessage().number(onnx_tensor::place, 0)).empty());
}

TEST_CASE("an ONNX file that ends early is an error, wherever it ends", "[onnx]") {
  Model model = model_of(parse_network(replaced(small_network_text, "0.5", "1e-5")));
  model.settings = {{"precision", "bf16"}};
  const std::string file = onnx_bytes(model);
  REQUIRE(refusal(file).empty());
  for (std::size_t length = 0; length < file.size(); ++length)
    if (refusal(file.substr(0, length)).empty()) FAIL("the first " << length << " bytes are read");
  CHECK(refusal("") == "it is no ONNX file: it does not begin with an IR version");
  CHECK(refusal("some text") == "it is no ONNX file: it does not begin with an IR version");
  CHECK_THAT(refusal(file.substr(0, file.size() - 3)), Contains("it is cut off"));
}

TEST_CASE("parts of an ONNX file that are there twice, or missing, are an error", "[onnx]") {
  const std::string graph = onnx_graph_of({}, {constant_of("a")});
  const auto note = [](const char* key) {
    return WireMessage().text(onnx_note::key, key).text(onnx_note::value, "1");
  };
  CHECK(refusal(onnx_file(graph, "pytorch", WireMessage().text(onnx_model::graph, graph))) ==
        "its field 7 is there twice");
  CHECK(refusal(onnx_file(graph, "pytorch",
                          WireMessage()
                              .message(onnx_model::metadata, note("x"))
                              .message(onnx_model::metadata, note("x")))) ==
        "it has two notes 'x'");
  CHECK(refusal(onnx_file("")) == "it has no graph");
  CHECK_THAT(refusal(onnx_file(WireMessage().text(onnx_graph::name, "empty").bytes())),
             Contains("reads a constant"));
  CHECK(refusal(onnx_file(graph, "lockstep")) == "it is cut off: it has no note 'width'");
  CHECK(refusal(WireMessage().number(1, 8).text(onnx_model::graph, graph).bytes()) ==
        "it is cut off: it has no operator set");
  std::vector<WireMessage> many;
  for (int i = 0; i < 5000; ++i) many.push_back(constant_of(std::to_string(i)));
  CHECK(refusal(onnx_file(onnx_graph_of({}, many))) == "it has more than 4096 constants");
}

TEST_CASE("messages nested in an ONNX file beyond what is read do no harm", "[onnx]") {
  // A graph in an attribute of a node in a graph, and so on.
  constexpr std::uint32_t inner_graph = 6;
  std::string inner;
  for (int depth = 0; depth < 2000; ++depth)
    inner = onnx_graph_of({node_of("If", {}, "y", {WireMessage().text(inner_graph, inner)})}, {});
  const std::string graph = onnx_graph_of(
      {node_of("If", {}, "z", {WireMessage().text(inner_graph, inner)})}, {constant_of("a")});
  CHECK(names_in(onnx_file(graph)) == std::set<std::string>{"a"});
}
