// Fuzzes what a client sends to `lockstep serve`: its path, its encoding, its JSON and binary
// tensors. What is read has as many values as its shape says.
#include <string>

#include "serve/protocol/infer_request.hpp"
#include "serve/protocol/route.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {
namespace {

/// The bytes are: two of the length of the JSON (or none), and the body.
std::string binary_seed(const std::string& json, const std::string& more) {
  std::string seed = "b";
  seed += static_cast<char>(json.size() & 255);
  seed += static_cast<char>(json.size() >> 8);
  return seed + json + more;
}

void judge(const serve::InferRequest& request) {
  for (const serve::InputTensor& tensor : request.inputs) {
    std::size_t values = 1;
    for (const std::size_t size : tensor.shape) values *= size;
    require_law(values == (tensor.pixels ? tensor.values.size() : tensor.strings.size()),
                "a tensor has as many values as its shape says");
    std::size_t sum = 0;
    for (const std::uint8_t value : tensor.values) sum += value;
    for (const std::string_view one : tensor.strings)
      for (const char letter : one) sum += static_cast<unsigned char>(letter);
    require_law(sum < std::size_t{1} << 40, "its bytes can be read");
  }
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string input = R"({"name":"images","datatype":"UINT8","shape":[1,1,2,1],)";
  return {"j{\"id\":\"a\",\"parameters\":{\"timeout\":5,\"binary_data_output\":true},\"inputs\":[" +
              input + R"("data":[[[[1],[2]]]]}],"outputs":[{"name":"logits","parameters":)" +
              R"({"classification":2,"binary_data":false}}]})",
          binary_seed("{\"inputs\":[" + input + "\"parameters\":{\"binary_data_size\":2}}]}", "xy"),
          binary_seed(R"({"inputs":[{"name":"i","datatype":"BYTES","shape":[2],)"
                      R"("parameters":{"binary_data_size":9}}]})",
                      std::string("\x01\0\0\0a\0\0\0\0", 9)),
          "z\x78\x9c\x4b\x04\x00\x00\x62\x00\x62",
          "r/v2/models/a/versions/1/infer",
          "j" + std::string(1000, '[')};
}

void one(std::span<const std::uint8_t> bytes) {
  Input input(bytes);
  ByteBudget::Share share(std::make_shared<ByteBudget>(std::size_t{1} << 26));
  switch (input.byte()) {
    case 'b': {
      const std::size_t length = input.byte() | std::size_t{input.byte()} << 8;
      const std::string body = text_of(input.rest());
      return judge(serve::parse_infer_request(body, std::to_string(length), {}, share));
    }
    case 'z':
      require_law(
          serve::decode_content(text_of(input.rest()), "gzip", 1 << 20, share).size() <= 1 << 20,
          "what is decoded is no longer than allowed");
      return;
    case 'r': {
      std::string allowed;
      serve::find_route("POST", text_of(input.rest()), allowed);
      return;
    }
    default: {
      const std::string body = text_of(input.rest());
      return judge(serve::parse_infer_request(body, std::nullopt, {}, share));
    }
  }
}

}  // namespace lockstep::fuzz
