#include "ports/grpc/infer.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "ports/grpc/methods.hpp"

namespace lockstep::grpc {
namespace {

using Json = nlohmann::ordered_json;
using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

Json value_of(const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return parameter.bool_param();
    case inference::InferParameter::kInt64Param:
      return parameter.int64_param();
    case inference::InferParameter::kStringParam:
      return parameter.string_param();
    case inference::InferParameter::kDoubleParam:
      return parameter.double_param();
    case inference::InferParameter::kUint64Param:
      return parameter.uint64_param();
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return nullptr;
}

Json json_of(const Parameters& parameters) {
  constexpr std::size_t most = 500;  // each is compared with those before it
  if (parameters.size() > most)
    throw RequestError(400, fmt::format("{} parameters, more than {}", parameters.size(), most));
  Json json = Json::object();
  for (const auto& [name, parameter] : parameters) json[name] = value_of(parameter);
  return json;
}

/// Takes the sooner of two limits, in microseconds; a client sets none with 0.
void limit_time(Json& parameters, std::optional<double> left_s) {
  if (!left_s) return;
  constexpr double longest_s = 1e6;
  const auto left_us = static_cast<std::int64_t>(std::clamp(*left_s * 1e6, 1.0, longest_s * 1e6));
  const auto given = parameters.find("timeout");
  if (given == parameters.end() || (given->is_number_integer() && *given == 0) ||
      (given->is_number_integer() && *given > left_us))
    parameters["timeout"] = left_us;
}

void append_contents(const inference::ModelInferRequest::InferInputTensor& input,
                     std::string& body) {
  const inference::InferTensorContents& contents = input.contents();
  for (const std::uint32_t pixel : contents.uint_contents()) {
    if (pixel > 255)
      throw RequestError(
          400, fmt::format("input '{}': 'contents' has something other than numbers from 0 to 255",
                           input.name()));
    body += static_cast<char>(static_cast<unsigned char>(pixel));
  }
  for (const std::string& file : contents.bytes_contents()) {
    const auto length = static_cast<std::uint32_t>(file.size());
    body.append(reinterpret_cast<const char*>(&length), sizeof length);
    body += file;
  }
}

/// The inputs' descriptions; `bytes` gets their values.
Json inputs_of(const inference::ModelInferRequest& message, std::string& bytes) {
  const int raw = message.raw_input_contents_size();
  if (raw > 0 && raw != message.inputs_size())
    throw RequestError(400, fmt::format("the request has {} inputs, but {} in 'raw_input_contents'",
                                        message.inputs_size(), raw));
  Json inputs = Json::array();
  for (const auto& input : message.inputs()) {
    const std::size_t begin = bytes.size();
    if (raw == 0)
      append_contents(input, bytes);
    else if (input.has_contents())
      throw RequestError(400, fmt::format("input '{}': has 'contents' next to 'raw_input_contents'",
                                          input.name()));
    else
      bytes += message.raw_input_contents(static_cast<int>(inputs.size()));
    Json parameters = json_of(input.parameters());
    parameters["binary_data_size"] = bytes.size() - begin;
    inputs.push_back(
        {{"name", input.name()},
         {"datatype", input.datatype()},
         {"shape", std::vector<std::int64_t>(input.shape().begin(), input.shape().end())},
         {"parameters", std::move(parameters)}});
  }
  return inputs;
}

using Stream = google::protobuf::io::CodedInputStream;
using Wire = google::protobuf::internal::WireFormatLite;

/// How deep in a message the tensors of an inference are, and their contents; and the numbers of
/// the fields that hold both.
enum Depth { of_message, of_tensor, of_contents };
constexpr int tensors_field = 5, contents_field = 5, shape_field = 3;

/// Counts what becomes an object. False for a message that is cut off, or too much.
bool count_parts(Stream& stream, Depth depth, std::size_t& parts) {
  constexpr std::size_t most_parts = 100'000, longest_shape = 100;
  while (const std::uint32_t tag = stream.ReadTag()) {
    const int field = Wire::GetTagFieldNumber(tag);
    const bool is_bytes = Wire::GetTagWireType(tag) == Wire::WIRETYPE_LENGTH_DELIMITED;
    if ((is_bytes || depth != of_contents) && ++parts > most_parts) return false;
    if (!is_bytes) {
      if (!Wire::SkipField(&stream, tag)) return false;
      continue;
    }
    std::uint32_t length = 0;
    if (!stream.ReadVarint32(&length)) return false;
    const bool inside = (depth == of_message && field == tensors_field) ||
                        (depth == of_tensor && field == contents_field);
    if (depth == of_tensor && field == shape_field && length > longest_shape) return false;
    if (!inside) {
      if (!stream.Skip(static_cast<int>(length))) return false;
      continue;
    }
    const auto outer = stream.PushLimit(static_cast<int>(length));
    if (!count_parts(stream, static_cast<Depth>(depth + 1), parts)) return false;
    stream.PopLimit(outer);
  }
  return true;
}

}  // namespace

void require_few_parts(::grpc::ByteBuffer& message) {
  ::grpc::ProtoBufferReader reader(&message);
  Stream stream(&reader);
  std::size_t parts = 0;
  if (!reader.status().ok() || !count_parts(stream, of_message, parts))
    throw RequestError(400, "the message is cut off, or has more parts than an inference has");
}

std::string model_path(const std::string& name, const std::string& version, const char* what) {
  if (name.empty() || name.find('/') != name.npos)
    throw RequestError(404, fmt::format("there is no model '{}'", name));
  if (version.find('/') != version.npos)
    throw RequestError(404, fmt::format("the model '{}' has no version '{}'", name, version));
  return fmt::format("/v2/models/{}{}{}{}", name, version.empty() ? "" : "/versions/", version,
                     what);
}

HttpRequest infer_request(const inference::ModelInferRequest& message,
                          std::optional<double> left_s) {
  HttpRequest request{.method = "POST",
                      .path = model_path(message.model_name(), message.model_version(), "/infer"),
                      .headers = {},
                      .body = ""};
  std::string bytes;
  Json json = Json::object();
  if (!message.id().empty()) json["id"] = message.id();
  Json parameters = json_of(message.parameters());
  parameters["binary_data_output"] = true;
  limit_time(parameters, left_s);
  json["parameters"] = std::move(parameters);
  json["inputs"] = inputs_of(message, bytes);
  Json outputs = Json::array();
  for (const auto& output : message.outputs()) {
    outputs.push_back({{"name", output.name()}, {"parameters", json_of(output.parameters())}});
    outputs.back()["parameters"]["binary_data"] = true;
  }
  if (!outputs.empty()) json["outputs"] = std::move(outputs);
  request.body = json_text(json);
  request.headers["inference-header-content-length"] = std::to_string(request.body.size());
  request.body += bytes;
  return request;
}

inference::ModelInferResponse infer_reply(const HttpResponse& response) {
  const std::string_view body = response.body;
  const auto length =
      whole_number<std::uint64_t>(response.headers.at("Inference-Header-Content-Length"));
  check(length && *length <= body.size(), "an answer without tensors");
  const Json json = Json::parse(body.substr(0, *length));
  std::string_view bytes = body.substr(*length);
  inference::ModelInferResponse reply;
  reply.set_model_name(json.at("model_name").get<std::string>());
  reply.set_model_version(json.at("model_version").get<std::string>());
  reply.set_id(json.value("id", ""));
  for (const Json& output : json.at("outputs")) {
    auto& tensor = *reply.add_outputs();
    tensor.set_name(output.at("name").get<std::string>());
    tensor.set_datatype(output.at("datatype").get<std::string>());
    for (const Json& size : output.at("shape")) tensor.add_shape(size.get<std::int64_t>());
    const auto size = output.at("parameters").at("binary_data_size").get<std::size_t>();
    check(size <= bytes.size(), "an output that is cut off");
    reply.add_raw_output_contents(bytes.data(), size);
    bytes.remove_prefix(size);
  }
  return reply;
}

}  // namespace lockstep::grpc
