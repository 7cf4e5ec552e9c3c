// Fuzzes ONNX. The first byte says what the rest is: a file; or a graph or a constant, which this
// puts into a file, because otherwise most changes are to a length around it.
#include "model/formats/readers.hpp"

#include "tests/fuzz/formats/tensors.hpp"
#include "tests/unit/model/formats/onnx_fixture.hpp"

namespace lockstep::fuzz {
namespace {

using namespace test;
using namespace model;

constexpr std::size_t kinds = 3;

std::string graph() {
  const WireMessage epsilon =
      WireMessage().text(onnx_attribute::name, "epsilon").real32(onnx_attribute::real, 1e-5f);
  const WireMessage turned =
      WireMessage().text(onnx_attribute::name, "transB").number(onnx_attribute::whole, 1);
  return onnx_graph_of(
      {node_of("Conv", {"x", "conv1.weight"}, "a"),
       node_of("BatchNormalization", {"a", "bn1.weight"}, "b", {epsilon}),
       node_of("Identity", {"bn1.weight"}, "bn1.bias"),
       node_of("Gemm", {"b", "fc.weight"}, "c", {turned})},
      {onnx_constant({"conv1.weight", {1, 1, 1, 2}, std::string(8, 'v')}),
       onnx_constant(
           {"bn1.weight", {1}, std::string(4, 'v'), OnnxType::real32, onnx_tensor::floats}),
       onnx_constant(
           {"fc.weight", {1, 2}, "\x81\x01\x02", OnnxType::float16, onnx_tensor::int32s})});
}

}  // namespace

std::vector<std::string> seeds() {
  const WireMessage note = WireMessage().text(onnx_note::key, "width").text(onnx_note::value, "8");
  const std::string file =
      onnx_file(graph(), "lockstep", WireMessage().message(onnx_model::metadata, note));
  std::vector<std::string> all = {'\0' + file, '\1' + graph()};
  const WireMessage place =
      WireMessage().text(onnx_note::key, "location").text(onnx_note::value, "a.data");
  for (const std::string& one :
       {onnx_constant({"a.num_batches_tracked", {}, "\x07", OnnxType::int64, onnx_tensor::int64s})
            .bytes(),
        onnx_constant({"fc.bias", {2}, std::string(16, 'v'), OnnxType::real64}).bytes(),
        onnx_constant({"fc.bias", {1}, std::string(8, 'v'), OnnxType::real64, onnx_tensor::doubles})
            .bytes(),
        onnx_constant({"fc.bias", {1}, "\x81\x01", OnnxType::bfloat16, onnx_tensor::int32s})
            .bytes(),
        WireMessage()
            .text(onnx_tensor::dimension, "\x02\x01")
            .number(onnx_tensor::type, 1)
            .text(onnx_tensor::name, "fc.bias")
            .message(onnx_tensor::external, place)
            .number(onnx_tensor::place, 1)
            .bytes()})
    all.push_back('\2' + one);
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  std::string file = text_of(bytes.subspan(1));
  if (bytes[0] % kinds == 1)
    file = onnx_file(file);
  else if (bytes[0] % kinds == 2)
    file = onnx_file(WireMessage().text(onnx_graph::constant, file).bytes());
  const auto content = std::make_shared<const std::string>(std::move(file));
  looks_like_onnx(*content);
  const AllocationLaw law(content->size());
  read_all(read_onnx(content), content->size());
}

}  // namespace lockstep::fuzz
