// The reader of inference requests: what comes back, and each way to be wrong.
#include "serve/protocol/infer_request.hpp"

#include <catch2/catch.hpp>

#include <string>

#include <fmt/format.h>

#include "lockstep/data/element_bytes.hpp"
#include "serve/protocol/route.hpp"

using namespace lockstep;
using namespace lockstep::serve;
using Catch::Matchers::Contains;

namespace {

std::string with_input(const std::string& fields) {
  return R"({"inputs":[{"name":"images",)" + fields + "}]}";
}

ByteBudget::Share share(std::size_t bytes = 1 << 20) {
  return ByteBudget::Share(std::make_shared<ByteBudget>(bytes));
}

InferRequest read_json(const std::string& text, std::size_t bytes = 1 << 20,
                       const TakenInput& input = {}) {
  auto taken = share(bytes);
  return parse_infer_request(text, std::nullopt, input, taken);
}

/// JSON and what follows it, with the header that says where.
InferRequest read_binary(const std::string& json, const std::string& more,
                         const TakenInput& input = {}) {
  static std::string body;  // the request sees into it
  body = json + more;
  auto taken = share();
  return parse_infer_request(body, std::to_string(json.size()), input, taken);
}

void refused(const std::string& json, const std::string& why) {
  INFO(json.substr(0, 200));
  CHECK_THROWS_WITH(read_json(json), Contains(why));
  CHECK_THROWS_AS(read_json(json), RequestError);
}

std::string element(const std::string& bytes) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + bytes;
}

}  // namespace

TEST_CASE("pixels as nested and as flat JSON, and as binary data, are the same request",
          "[serve]") {
  const std::string flat = R"("datatype":"UINT8","shape":[2,1,2,1],"data":[0,255,7,9])";
  const std::string nested =
      R"("datatype":"UINT8","shape":[2,1,2,1],"data":[[[[0],[255]]],[[[7],[9]]]])";
  const std::string binary =
      R"("datatype":"UINT8","shape":[2,1,2,1],"parameters":{"binary_data_size":4})";
  const std::vector<std::uint8_t> pixels = {0, 255, 7, 9};
  const auto judge = [&](const InferRequest& request) {
    REQUIRE(request.inputs.size() == 1);
    const InputTensor& tensor = request.inputs[0];
    CHECK((tensor.name == "images" && tensor.pixels));
    CHECK(tensor.shape == std::vector<std::size_t>{2, 1, 2, 1});
    CHECK(std::vector<std::uint8_t>(tensor.values.begin(), tensor.values.end()) == pixels);
  };
  judge(read_json(with_input(flat)));
  judge(read_json(with_input(nested)));
  judge(read_binary(with_input(binary), {"\x00\xff\x07\x09", 4}));
}

namespace {

std::vector<std::uint8_t> bytes_in(const InferRequest& request) {
  return {request.inputs.at(0).values.begin(), request.inputs.at(0).values.end()};
}

/// `data` as JSON and its bytes as binary data are the same tensor of one row.
void check_element(data::Element element, const std::string& json, const std::string& bytes) {
  const std::string type = datatype_of(element);
  const std::size_t count = bytes.size() / data::bytes_of(element);
  CAPTURE(type);
  const std::string head = fmt::format(R"("datatype":"{}","shape":[{}],)", type, count);
  const TakenInput taken{.element = element, .files = false};
  const auto binary = [&](std::size_t size) {
    return with_input(head + fmt::format(R"("parameters":{{"binary_data_size":{}}})", size));
  };
  const std::vector<std::uint8_t> wanted(bytes.begin(), bytes.end());
  CHECK(bytes_in(read_binary(binary(bytes.size()), bytes, taken)) == wanted);
  CHECK_THROWS_WITH(
      read_binary(binary(bytes.size() - 1), bytes.substr(1), taken),
      Contains(fmt::format("is of {} values, but it has {} and a piece of one", count, count - 1)));
  if (json.empty())
    CHECK_THROWS_WITH(read_json(with_input(head + R"("data":[1])"), 1 << 20, taken),
                      Contains("comes as binary data alone"));
  else
    CHECK(bytes_in(read_json(with_input(head + R"("data":)" + json), 1 << 20, taken)) == wanted);
  CHECK_THROWS_WITH(
      read_json(with_input(R"("datatype":"UINT8","shape":[1],"data":[1])"), 1 << 20, taken),
      Contains("the datatype UINT8 is not taken; " + type + " is"));
  CHECK_THROWS_WITH(
      read_json(with_input(R"("datatype":"BYTES","shape":[1],"data":["a"])"), 1 << 20, taken),
      Contains("the datatype BYTES is not taken; " + type + " is"));
}

template <class... Numbers>
std::string bytes_of_all(Numbers... numbers) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
  return bytes;
}

}  // namespace

TEST_CASE("numbers of each element are the same as JSON and as binary data", "[serve]") {
  check_element(
      data::Element::u16, "[0,255,[256,65535.0]]",
      bytes_of_all<std::uint16_t, std::uint16_t, std::uint16_t, std::uint16_t>(0, 255, 256, 65535));
  check_element(data::Element::i16, "[-32768,-1,32767]",
                bytes_of_all<std::int16_t, std::int16_t, std::int16_t>(-32768, -1, 32767));
  check_element(data::Element::f32, "[-0.5,16777217,3e38,7]",
                bytes_of_all(-0.5f, 16777216.f, 3e38f, 7.f));
  check_element(data::Element::f16, "", bytes_of_all<std::uint16_t, std::uint16_t>(0x3c00, 0x7bff));
}

TEST_CASE("a number that its element does not hold is an error", "[serve]") {
  const auto wrong = [](data::Element element, const std::string& number, const std::string& why) {
    const std::string json = with_input(
        fmt::format(R"("datatype":"{}","shape":[1],"data":[{}])", datatype_of(element), number));
    CAPTURE(json);
    CHECK_THROWS_WITH(read_json(json, 1 << 20, {.element = element}), Contains(why));
  };
  for (const char* number : {"65536", "-1", "1.5", "\"7\"", "null", "true"})
    wrong(data::Element::u16, number, "other than whole numbers from 0 to 65535");
  for (const char* number : {"32768", "-32769", "0.5"})
    wrong(data::Element::i16, number, "other than whole numbers from -32768 to 32767");
  for (const char* number : {"3.5e38", "-1e300", "null", "\"1\""})
    wrong(data::Element::f32, number, "other than numbers from -3.40282e+38 to 3.40282e+38");
}

TEST_CASE("elements of bytes come as they are, also empty ones and those with zeros", "[serve]") {
  const std::string with_zero("a\0b", 3);
  const std::string bytes = element(with_zero) + element("") + element("xyz");
  const InferRequest request =
      read_binary(with_input(fmt::format(
                      R"("datatype":"BYTES","shape":[3],"parameters":{{"binary_data_size":{}}})",
                      bytes.size())),
                  bytes);
  CHECK(request.inputs[0].strings == std::vector<std::string_view>{with_zero, "", "xyz"});
  const InferRequest json =
      read_json(with_input(R"("datatype":"BYTES","shape":[2],"data":["a","b"])"));
  CHECK(json.inputs[0].strings == std::vector<std::string_view>{"a", "b"});
}

TEST_CASE("a request keeps what it says of its outputs, its identity and its deadline", "[serve]") {
  const InferRequest request = read_json(
      R"({"id":"seven","parameters":{"timeout":2500000,"binary_data_output":true,"other":[1]},)"
      R"("inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[1]}],"outputs":[)"
      R"({"name":"logits","parameters":{"binary_data":false}},)"
      R"({"name":"probabilities","parameters":{"classification":3}}]})");
  CHECK((request.id == "seven" && request.binary));
  CHECK(request.timeout_s == 2.5);
  REQUIRE(request.outputs.size() == 2);
  CHECK((request.outputs[0].name == "logits" && request.outputs[0].binary == false));
  CHECK((request.outputs[1].classification == 3 && !request.outputs[1].binary));
}

TEST_CASE("a request that is not JSON of its form is an error that says where", "[serve]") {
  refused("", "is not JSON: wrong at byte 1");
  refused("{\"inputs\":", "is not JSON: wrong at byte");
  refused("\xff\xfe", "is not JSON");
  refused("[]", "not an object");
  refused("{}", "no 'inputs'");
  refused(R"({"inputs":[]})", "no 'inputs'");
  refused(R"({"inputs":{}})", "'inputs' is not an array");
  refused(R"({"inputs":[7]})", "input 0 is not an object");
  refused(R"({"inputs":[{}]})", "input 0: 'name' is not a string");
  refused(R"({"inputs":[{"name":7}]})", "input 0: 'name' is not a string");
  refused(R"({"id":7,"inputs":[{}]})", "'id' is not a string");
  refused(R"({"parameters":[],"inputs":[{}]})", "'parameters' is not an object");
  refused(R"({"parameters":{"timeout":-1},"inputs":[{}]})", "'timeout' is not a whole number");
  refused(R"({"parameters":{"binary_data_output":1},"inputs":[{}]})", "neither true nor false");
  const std::string good = R"("datatype":"UINT8","shape":[1],"data":[1])";
  refused(R"({"outputs":7,"inputs":[{"name":"images",)" + good + "}]}",
          "'outputs' is not an array");
  refused(R"({"outputs":[{}],"inputs":[{"name":"images",)" + good + "}]}", "output 0: 'name'");
  refused(with_input(R"("shape":[1],"data":[1])"), "'datatype' is not a string");
  refused(with_input(R"("datatype":"uint8","shape":[1],"data":[1])"), "'uint8' is not a datatype");
  refused(with_input(R"("datatype":"FP32","shape":[1],"data":[1])"), "FP32 is not taken; UINT8 is");
}

TEST_CASE("a number that no double holds is an error, and 1.0 is a whole one", "[serve]") {
  CHECK(read_json(with_input(R"("datatype":"UINT8","shape":[1.0],"data":[78.0])"))
            .inputs[0]
            .values[0] == 78);
  refused(with_input(R"("datatype":"UINT8","shape":[1],"data":[78.5])"), "from 0 to 255");
  refused(with_input(R"("datatype":"UINT8","shape":[1.5],"data":[7])"), "from 1");
  refused(R"({"id":"a","more":1e999})", "a number that is too large");
}

TEST_CASE("shapes and data that do not fit each other are errors", "[serve]") {
  const auto pixels = [](const std::string& shape, const std::string& data) {
    return with_input(R"("datatype":"UINT8","shape":)" + shape + R"(,"data":)" + data);
  };
  refused(pixels("7", "[1]"), "'shape' is not an array");
  refused(pixels("[]", "[]"), "'shape' is not an array");
  refused(pixels("[-1]", "[1]"), "whole numbers from 1");
  refused(pixels("[0]", "[]"), "whole numbers from 1");
  refused(pixels("[1.5]", "[1]"), "whole numbers from 1");
  refused(pixels("[18446744073709551615,2]", "[1]"), "more than");
  refused(pixels("[4294967296,4294967296]", "[1]"), "more than");
  refused(pixels("[1,1,1,1,1,1,1,1,1]", "[1]"), "'shape' is not an array of 1 to 8");
  refused(pixels("[2]", "[1]"), "shape is of 2 values, but it has 1");
  refused(pixels("[1]", "[1,2]"), "shape is of 1 values, but it has 2");
  for (const char* bad : {"256", "-1", "1.5", "\"1\"", "null", "true", "{}"})
    refused(pixels("[1]", fmt::format("[{}]", bad)), "other than whole numbers from 0 to 255");
  refused(with_input(R"("datatype":"BYTES","shape":[1],"data":[1])"), "other than strings");
  refused(with_input(R"("datatype":"UINT8","shape":[1])"), "either an array 'data' or");
  refused(with_input(R"("datatype":"UINT8","shape":[1],"data":[1],)"
                     R"("parameters":{"binary_data_size":1})"),
          "either an array 'data' or");
  refused(with_input(R"("datatype":"UINT8","shape":[1],"parameters":{"shared_memory_region":"a"})"),
          "shared memory");
}

TEST_CASE("lengths that do not add up are errors", "[serve]") {
  const auto sized = [](const std::string& datatype, std::size_t rows, std::size_t bytes) {
    return with_input(
        fmt::format(R"("datatype":"{}","shape":[{}],"parameters":{{"binary_data_size":{}}})",
                    datatype, rows, bytes));
  };
  const auto wrong = [](const std::string& json, const std::string& more, const std::string& why) {
    CHECK_THROWS_WITH(read_binary(json, more), Contains(why));
  };
  wrong(sized("UINT8", 4, 4), "abc", "has 4 bytes of binary data, but 3 are left");
  wrong(sized("UINT8", 3, 3), "abcd", "1 bytes of the body follow the last tensor");
  wrong(sized("UINT8", 3, 4), "abcd", "shape is of 3 values, but it has 4");
  wrong(sized("BYTES", 1, 3), "abc", "cut off in its length");
  wrong(sized("BYTES", 1, 6), std::string("\x03\0\0\0ab", 6), "length of 3 bytes, but 2 are left");
  wrong(sized("BYTES", 1, 4), "\xff\xff\xff\xff", "are left");
  wrong(sized("BYTES", 2, 4), std::string(4, '\0'), "shape is of 2 values, but it has 1");
  auto taken = share();
  for (const char* length : {"-1", "x", "", "1e3", "99999999999999999999", "3"})
    CHECK_THROWS_WITH(parse_infer_request("{}", length, {}, taken),
                      Contains("Inference-Header-Content-Length"));
  CHECK((is_raw("0") && !is_raw("7") && !is_raw("") && !is_raw(std::nullopt)));
}

TEST_CASE("what is nested too deep, or too long, is an error before it takes memory", "[serve]") {
  refused(std::string(100'000, '['), "nested deeper");
  std::string objects;
  for (int i = 0; i < 50'000; ++i) objects += R"({"a":)";
  refused(objects, "nested deeper");
  refused(with_input(R"("datatype":"UINT8","shape":[1],"data":)" + std::string(30, '[') + "1" +
                     std::string(30, ']')),
          "nested deeper");
  refused(std::string((8 << 20) + 1, ' '), "at most 8388608 bytes");
}

TEST_CASE("the objects of a request have few members: each is compared with those before it",
          "[serve]") {
  std::string members;
  for (int i = 0; i < 501; ++i) members += fmt::format(R"(,"k{}":0)", i);
  refused(R"({"inputs":[])" + members + "}", "at most 500 members, but these have 502");
  refused(R"({"inputs":[{"name":"images","parameters":{"a":0)" + members + "}}]}", "500 members");
  const std::string colons(1000, ':');
  CHECK(read_json(
            with_input(R"("note":")" + colons + R"(","datatype":"UINT8","shape":[1],"data":[1])"))
            .inputs[0]
            .values[0] == 1);
}

TEST_CASE("a request of more strings than its shape says is an error before all are taken",
          "[serve]") {
  const std::string empty(40'000, '\0');  // 10,000 of them
  const auto json = [](std::size_t rows) {
    return with_input(fmt::format(
        R"("datatype":"BYTES","shape":[{}],"parameters":{{"binary_data_size":40000}})", rows));
  };
  CHECK_THROWS_WITH(read_binary(json(9'999), empty), Contains("9999 values, but it has more"));
  CHECK(read_binary(json(10'000), empty).inputs[0].strings.size() == 10'000);
  CHECK_THROWS_WITH(read_binary(json(2'000'000), empty), Contains("more than 1048576 strings"));
}

TEST_CASE("JSON is read only where there is room for what it becomes", "[serve]") {
  std::string data = "[1]";
  for (int i = 1; i < 10'000; ++i) data += ",[1]";
  const std::string json =
      with_input(R"("datatype":"UINT8","shape":[10000],"data":[)" + data + "]");
  CHECK(read_json(json, 2'000'000).inputs[0].values.size() == 10'000);
  CHECK_THROWS_WITH(read_json(json, 1'000'000), Contains("too many bytes wait"));
}
