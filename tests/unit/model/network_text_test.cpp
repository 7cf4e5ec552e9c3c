#include "lockstep/model/network_text.hpp"

#include <string>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/resnet.hpp"
#include "tests/unit/model/network_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;

namespace {

std::string error_of(const std::string& text) {
  try {
    parse_network(text);
  } catch (const InputError& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    CHECK(std::string(error.what()).size() < 400);
    return error.what();
  }
  return "no error";
}

/// The error of the small network's text with `from` replaced by `to`.
std::string error_with(const std::string& from, const std::string& to) {
  return error_of(replaced(small_network_text, from, to));
}

}  // namespace

TEST_CASE("each ResNet comes back from its text, field by field", "[checkpoint]") {
  for (const std::string& model : nn::resnet_models()) {
    nn::ResNetSpec spec = nn::usual_resnet(model, 64, 7);
    spec.zero_init_residual = true;
    spec.channels = 4;
    const nn::Network network = nn::resnet(spec);
    const std::string text = network_text(network);
    CAPTURE(model, text.size());
    CHECK(same(parse_network(text), network));
    CHECK(network_text(parse_network(text)) == text);
    CHECK(text.size() < 100'000);
  }
}

TEST_CASE("a network's text says what its nodes are", "[checkpoint]") {
  const nn::Network network = parse_network(small_network_text);
  REQUIRE(network.nodes.size() == 7);
  CHECK(network.classes == 2);
  CHECK(network.input == nn::Shape{3, 4, 5});
  const nn::Node& conv = network.nodes[1];
  CHECK(conv.shape == nn::Shape{16, 2, 3});
  CHECK(conv.kernel == 3);
  CHECK(conv.stride == 2);
  CHECK(conv.padding == 1);
  CHECK(network.nodes[2].epsilon == 0.5f);
  CHECK(network.nodes[4].op == nn::Op::global_avg_pool);
  CHECK(network.nodes[5].shape == nn::Shape{2, 1, 1});
}

TEST_CASE("a text that is cut anywhere is an error", "[checkpoint]") {
  const std::string text = network_text(nn::resnet({.model = "resnet20"}));
  for (std::size_t size = 0; size < text.size(); size += 61)
    CHECK_THAT(error_of(text.substr(0, size)), Contains("it is not JSON"));
}

TEST_CASE("a text that is nested deeply, too long or not JSON is an error", "[checkpoint]") {
  CHECK_THAT(error_of(std::string(1'000'000, '[')), Contains("nested more than 4 deep"));
  CHECK_THAT(error_with(R"("bias":true)", "\"bias\":" + std::string(100'000, '[')),
             Contains("nested more than 4 deep"));
  CHECK_THAT(error_of(small_network_text + std::string(std::size_t{1} << 22, ' ')),
             Contains("at most 4194304 are read"));
  CHECK_THAT(error_with("conv1", "\xff"), Contains("it is not JSON"));
  CHECK_THAT(error_with("0.5", "NaN"), Contains("it is not JSON"));
  CHECK_THAT(error_with("0.5", "1e999"), Contains("it is not JSON"));
  CHECK_THAT(error_of("7"), Contains("the network is not an object"));
}

TEST_CASE("a wrong value in a network's text is an error that names node and field",
          "[checkpoint]") {
  CHECK_THAT(error_with(R"("kernel":3)", R"("kernel":0)"),
             Contains("node 1 (conv1): 'kernel' is not a whole number from 1 to 256"));
  for (const char* wrong : {"-3", "3.0", "\"3\"", "null", "[3]", "18446744073709551616"})
    CHECK_THAT(error_with(R"("stride":2)", std::string(R"("stride":)") + wrong),
               Contains("node 1 (conv1): 'stride' is not a whole number"));
  CHECK_THAT(error_with(R"("padding":1)", R"("padding":3)"), Contains("from 0 to 2"));
  CHECK_THAT(error_with("0.5", "-0.5"), Contains("node 2 (bn1): 'epsilon' is not a number from 0"));
  CHECK_THAT(error_with("true", "1"), Contains("node 5 (fc): 'bias' is not true or false"));
  CHECK_THAT(error_with(R"("stride":2,)", ""), Contains("node 1 (conv1): 'stride' is missing"));
  CHECK_THAT(error_with(R"("stride":2)", R"("stride":2,"dilation":2)"),
             Contains("node 1 (conv1): 'dilation' is not a field that this lockstep knows"));
  CHECK_THAT(error_with(R"("op":"relu")", R"("op":"gelu")"),
             Contains("node 3 (relu): op: 'gelu' is not known"));
  CHECK_THAT(error_with(R"("height":4)", R"("height":70000)"), Contains("the network's input"));
  CHECK_THAT(error_with(R"("nodes":[)", R"("nodes":{},"n":[)"), Contains("'n' is not a field"));
}

TEST_CASE("nodes that are not a network are an error that names one", "[checkpoint]") {
  CHECK_THAT(error_with(R"("inputs":["conv1"])", R"("inputs":["fc"])"),
             Contains("node 2 (bn1): 'inputs' has a name of no earlier node"));
  CHECK_THAT(error_with(R"("inputs":["conv1"])", R"("inputs":[])"),
             Contains("node 2 (bn1): 'inputs' does not have 1 name"));
  CHECK_THAT(error_with(R"("inputs":["conv1"])", R"("inputs":["input"])"),
             Contains("conv1: no node reads it"));
  CHECK_THAT(error_with(R"("name":"bn1")", R"("name":"conv1")"),
             Contains("a second node is named 'conv1'"));
  for (const char* name : {"a/b", "", "two\\nlines", "a b", "\\u0000"})
    CHECK_THAT(error_with(R"("name":"bn1")", std::string(R"("name":")") + name + '"'),
               Contains("node 2: 'name' is not a name of 1 to 200"));
  CHECK_THAT(error_with(R"("classes":2)", R"("classes":3)"),
             Contains("loss: its input is not one value for each class"));
  CHECK_THAT(error_with(R"("op":"global_avg_pool")", R"("op":"relu")"),
             Contains("fc: its input is not one pixel"));
  CHECK_THAT(error_with(R"("kernel":3)", R"("kernel":9)"), Contains("a window of 9 does not fit"));
  CHECK_THAT(error_with(R"(,{"name":"loss","op":"loss","inputs":["fc"]})", ""),
             Contains("the last node must be the loss"));
  CHECK_THAT(error_with(R"({"name":"input","op":"input"})",
                        R"({"name":"input","op":"input"},{"name":"i2","op":"input"})"),
             Contains("i2: only the first node is the input"));
}

TEST_CASE("a network of huge images is an error before anything is allocated", "[checkpoint]") {
  const std::string large = replaced(
      replaced(small_network_text, R"("height":4,"width":5)", R"("height":65536,"width":65536)"),
      R"("channels":16)", R"("channels":1048576)");
  CHECK_THAT(error_of(large), Contains("node 0 (input) has more values than this lockstep takes"));
}
