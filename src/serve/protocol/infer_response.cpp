#include "serve/protocol/infer_response.hpp"

#include <bit>

#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_text.hpp"

namespace lockstep::serve {
namespace {

using Ordered = nlohmann::ordered_json;
static_assert(std::endian::native == std::endian::little, "binary tensors are little-endian");

std::string binary_data(const OutputTensor& tensor) {
  std::string bytes(reinterpret_cast<const char*>(tensor.values.data()),
                    tensor.values.size() * sizeof(float));
  for (const std::string& one : tensor.strings) {
    const auto length = static_cast<std::uint32_t>(one.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += one;
  }
  return bytes;
}

}  // namespace

std::string infer_response_body(const InferResponse& response, std::size_t& json_length) {
  Ordered json = {{"model_name", response.model}, {"model_version", response.version}};
  if (!response.id.empty()) json["id"] = response.id;
  Ordered& outputs = json["outputs"] = Ordered::array();
  std::string binary;
  for (const OutputTensor& tensor : response.outputs) {
    Ordered one = {{"name", tensor.name},
                   {"datatype", tensor.strings.empty() ? "FP32" : "BYTES"},
                   {"shape", tensor.shape}};
    if (tensor.binary) {
      const std::string bytes = binary_data(tensor);
      one["parameters"] = {{"binary_data_size", bytes.size()}};
      binary += bytes;
    } else if (tensor.strings.empty()) {
      one["data"] = tensor.values;
    } else {
      one["data"] = tensor.strings;
    }
    outputs.push_back(std::move(one));
  }
  const std::string text = json_text(json);
  json_length = text.size();
  return text + binary;
}

}  // namespace lockstep::serve
