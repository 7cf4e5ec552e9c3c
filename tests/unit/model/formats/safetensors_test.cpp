#include "model/formats/readers.hpp"

#include <catch2/catch.hpp>

#include "lockstep/model/network_text.hpp"
#include "tests/unit/model/formats/formats_fixture.hpp"
#include "tests/unit/model/network_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;

namespace {

TensorFile read_header(const std::string& header, const std::string& values) {
  return read_safetensors(std::make_shared<const std::string>(safetensors_file(header, values)));
}

std::string header_refusal(const std::string& header, const std::string& values) {
  return error_of([&] { read_header(header, values); });
}

}  // namespace

TEST_CASE("a safetensors file is the header that the format's own library writes, and the values",
          "[formats]") {
  Model model = model_of(parse_network(small_network_text));
  model.about.input.classes.clear();
  const std::string bytes = safetensors_bytes(model);
  std::string header =
      R"({"__metadata__":{"crc32c":")" + checksum_of(model) +
      R"(","fit":"others","format":"pt","height":"4",)"
      R"("mean":"[0.49129998683929443,0.49129998683929443,0.49129998683929443]","model":"small",)"
      R"("producer":"lockstep","short_side":"36",)"
      R"("stddev":"[0.3333333432674408,0.3333333432674408,0.3333333432674408]","width":"5"},)"
      R"("bn1.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("bn1.bias":{"dtype":"F32","shape":[16],"data_offsets":[8,72]},)"
      R"("bn1.running_mean":{"dtype":"F32","shape":[16],"data_offsets":[72,136]},)"
      R"("bn1.running_var":{"dtype":"F32","shape":[16],"data_offsets":[136,200]},)"
      R"("bn1.weight":{"dtype":"F32","shape":[16],"data_offsets":[200,264]},)"
      R"("conv1.weight":{"dtype":"F32","shape":[16,3,3,3],"data_offsets":[264,1992]},)"
      R"("fc.bias":{"dtype":"F32","shape":[2],"data_offsets":[1992,2000]},)"
      R"("fc.weight":{"dtype":"F32","shape":[2,16],"data_offsets":[2000,2128]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string values = little(std::int64_t{4711});
  for (const char* name : {"bn1.bias", "bn1.running_mean", "bn1.running_var", "bn1.weight",
                           "conv1.weight", "fc.bias", "fc.weight"})
    for (const Weight& weight : model.weights)
      if (weight.tensor.name == name) values += floats(weight.values);
  CHECK(bytes.substr(8, header.size()) == header);
  CHECK((bytes == safetensors_file(header, values)));
}

TEST_CASE("safetensors of halves and doubles become floats, in any order of the header",
          "[formats]") {
  const TensorFile file =
      read_header(R"({"b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},)"
                  R"("a":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                  R"("c":{"dtype":"BF16","shape":[1,2],"data_offsets":[12,16]},)"
                  R"("empty":{"dtype":"F32","shape":[2,0],"data_offsets":[16,16]}} )",
                  little(0.1) + little(std::uint16_t{0x3555}) + little(std::uint16_t{0xfbff}) +
                      little(std::uint16_t{0x3eab}) + little(std::uint16_t{0x0001}));
  std::map<std::string, std::vector<float>> values;
  for (const StoredTensor& tensor : file.tensors) values[tensor.name] = values_of(tensor);
  CHECK(values["a"] == std::vector<float>{0.1f});
  CHECK(values["b"] == std::vector<float>{0.333251953125f, -65504});
  CHECK(values["c"] == std::vector<float>{0.333984375f, 0x1p-133f});
  CHECK(values["empty"].empty());
}

TEST_CASE("a safetensors file that cannot be right is an error that names the tensor",
          "[formats]") {
  const auto one = [](const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
  };
  const std::string four = floats({1});
  CHECK(header_refusal(one("F32", "[1]", "[0,4]"), four).empty());
  CHECK(header_refusal(one("F32", "[1]", "[0,4]"), "123") ==
        "it is cut off: tensor 'a' ends at byte 4 of 3");
  CHECK(header_refusal(one("F32", "[1]", "[0,4]"), four + "1") ==
        "1 bytes after the last tensor belong to none");
  CHECK(header_refusal(one("F32", "[1]", "[4,8]"), four + four) ==
        "tensor 'a' begins at byte 4, but the one before it ends at byte 0");
  CHECK(header_refusal(one("F32", "[2]", "[0,4]"), four) ==
        "tensor 'a' of F32 and shape [2] does not have the 4 bytes of its offsets");
  CHECK_THAT(header_refusal(one("F32", "[4294967296,4294967296,4]", "[0,0]"), ""),
             Contains("too many numbers"));
  CHECK_THAT(header_refusal(one("F32", "[-1]", "[0,4]"), four),
             Contains("'a' has no list of numbers"));
  CHECK_THAT(header_refusal(one("F32", "[1]", "[4,0]"), four), Contains("'a' has no two offsets"));
  CHECK_THAT(header_refusal(one("F32", "[1]", "[0]"), four), Contains("'a' has no two offsets"));
  CHECK_THAT(header_refusal(one("F31", "[1]", "[0,4]"), four),
             Contains("'a' is of an unknown type 'F31'"));
  CHECK_THAT(header_refusal(one("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), four),
             Contains("'a' has 9 dimensions"));
  CHECK(header_refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                       "123456") ==
        "tensor 'b' begins at byte 2, but the one before it ends at byte 4");
  CHECK(header_refusal(R"({"a":1})", "") == "tensor 'a' is not an object");
  CHECK(header_refusal(R"({"a\n":1,"a\n":1})", "") == "its header has 'a?' twice");
  CHECK(header_refusal(R"([1])", "") == "its header is not an object");
  CHECK(header_refusal(R"({"a")", "") == "its header is not JSON");
  CHECK(header_refusal(R"({"__metadata__":{"x":1}})", "") == "its note 'x' is not a text");
  CHECK(header_refusal(std::string(100000, '['), "") == "its header is nested too deeply");
}

TEST_CASE("a safetensors header that is longer than the file, or than any, is an error",
          "[formats]") {
  const auto refuse = [](const std::string& bytes) {
    return error_of([&] { read_safetensors(std::make_shared<const std::string>(bytes)); });
  };
  CHECK_THAT(refuse("1234"), Contains("cut off"));
  CHECK(refuse(little(std::uint64_t{100}) + "{}") ==
        "it is cut off: it has 10 bytes, its header alone 100");
  CHECK(refuse(little(std::uint64_t{1} << 63) + "{}") ==
        "its header has 9223372036854775808 bytes; at most 1048576 are read");
  CHECK(refuse(safetensors_file("{" + std::string(100'000'000, ' ') + "}", "")) ==
        "its header has 100000002 bytes; at most 1048576 are read");
}
