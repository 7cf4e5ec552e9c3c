#include "serve/protocol/infer_request.hpp"

#include <bit>
#include <cstdint>

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::serve {
namespace {

using Ordered = nlohmann::ordered_json;
static_assert(std::endian::native == std::endian::little, "binary tensors are little-endian");

std::size_t binary_bytes(const OutputTensor& tensor) {
  std::size_t bytes = tensor.values.size() * sizeof(float);
  for (const std::string& one : tensor.strings) bytes += sizeof(std::uint32_t) + one.size();
  return bytes;
}

void append_binary(const OutputTensor& tensor, std::string& body) {
  body.append(reinterpret_cast<const char*>(tensor.values.data()),
              tensor.values.size() * sizeof(float));
  for (const std::string& one : tensor.strings) {
    const auto length = static_cast<std::uint32_t>(one.size());
    body.append(reinterpret_cast<const char*>(&length), sizeof length);
    body += one;
  }
}

void append_json(const OutputTensor& tensor, std::string& json) {
  json += fmt::format(R"({{"name":{},"datatype":"{}","shape":[{}],)", json_string(tensor.name),
                      tensor.strings.empty() ? "FP32" : "BYTES", join(tensor.shape, ","));
  if (tensor.binary)
    json += fmt::format(R"("parameters":{{"binary_data_size":{}}}}})", binary_bytes(tensor));
  else if (tensor.strings.empty())
    json += R"("data":)" + json_text(Ordered(tensor.values)) + "}";
  else
    json += R"("data":)" + json_text(Ordered(tensor.strings)) + "}";
}

}  // namespace

std::string infer_response_body(const InferResponse& response, std::size_t& json_length) {
  std::string body = fmt::format(R"({{"model_name":{},"model_version":{},)",
                                 json_string(response.model), json_string(response.version));
  if (!response.id.empty()) body += fmt::format(R"("id":{},)", json_string(response.id));
  body += R"("outputs":[)";
  for (const OutputTensor& tensor : response.outputs) {
    if (body.back() == '}') body += ',';
    append_json(tensor, body);
  }
  body += "]}";
  json_length = body.size();
  for (const OutputTensor& tensor : response.outputs)
    if (tensor.binary) append_binary(tensor, body);
  return body;
}

}  // namespace lockstep::serve
