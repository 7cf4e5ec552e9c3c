#include "ports/grpc/call.hpp"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>
#include <inference.pb.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/http.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/numbers.hpp"

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

template <class Number>
void append_number(Number number, std::string& body) {
  body.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// Whole numbers that came as wider ones.
template <class Number>
void append_whole(const auto& numbers, const std::string& input, std::string& body) {
  using Limits = std::numeric_limits<Number>;
  for (const auto number : numbers) {
    if (!std::in_range<Number>(number))
      throw RequestError(
          400, fmt::format("input '{}': 'contents' has something other than numbers from {} to {}",
                           input, Limits::min(), Limits::max()));
    append_number(static_cast<Number>(number), body);
  }
}

/// Throws RequestError 400 for values that are of another type than the input.
void require_own_contents(const inference::ModelInferRequest::InferInputTensor& input) {
  const inference::InferTensorContents& contents = input.contents();
  const std::string& type = input.datatype();
  const bool unsigned_numbers = type == "UINT8" || type == "UINT16";
  if ((contents.int_contents_size() == 0 || type == "INT16") &&
      (contents.uint_contents_size() == 0 || unsigned_numbers) &&
      (contents.fp32_contents_size() == 0 || type == "FP32") &&
      (contents.bytes_contents_size() == 0 || type == "BYTES"))
    return;
  throw RequestError(
      400, fmt::format("input '{}': 'contents' has values of another type than {}{}", input.name(),
                       type, type == "FP16" ? ", which 'raw_input_contents' takes" : ""));
}

void append_contents(const inference::ModelInferRequest::InferInputTensor& input,
                     std::string& body) {
  const inference::InferTensorContents& contents = input.contents();
  require_own_contents(input);
  if (input.datatype() == "UINT16")
    append_whole<std::uint16_t>(contents.uint_contents(), input.name(), body);
  else
    append_whole<std::uint8_t>(contents.uint_contents(), input.name(), body);
  append_whole<std::int16_t>(contents.int_contents(), input.name(), body);
  for (const float number : contents.fp32_contents()) append_number(number, body);
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

/// Throws RequestError 400 for an inference's message of more parts than one has: reading it would
/// take many times its bytes.
void require_few_parts(::grpc::ByteBuffer& message) {
  ::grpc::ProtoBufferReader reader(&message);
  Stream stream(&reader);
  std::size_t parts = 0;
  if (!reader.status().ok() || !count_parts(stream, of_message, parts))
    throw RequestError(400, "the message is cut off, or has more parts than an inference has");
}

/// models/NAME[/versions/VERSION]WHAT. Throws RequestError 404 for a name that no path can have.
std::string model_path(const std::string& name, const std::string& version, const char* what) {
  if (name.empty() || name.find('/') != name.npos)
    throw RequestError(404, fmt::format("there is no model '{}'", name));
  if (version.find('/') != version.npos)
    throw RequestError(404, fmt::format("the model '{}' has no version '{}'", name, version));
  return fmt::format("/v2/models/{}{}{}{}", name, version.empty() ? "" : "/versions/", version,
                     what);
}

/// The request whose body is JSON and then the tensors' bytes, and which wants the outputs as
/// bytes, too. Throws RequestError 400 naming the input: contents in two places, or for other
/// inputs, or a number that is no pixel.
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

/// The reply, from the response to such a request.
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

}  // namespace

namespace {

template <class Message>
Message parsed(::grpc::ByteBuffer& bytes) {
  Message message;
  ::grpc::ProtoBufferReader reader(&bytes);
  if (!reader.status().ok() || !message.ParseFromZeroCopyStream(&reader))
    throw RequestError(400, fmt::format("the message is not an {}", message.GetTypeName()));
  return message;
}

template <class Message>
::grpc::ByteBuffer bytes_of(const Message& message) {
  constexpr int block = 1 << 20;
  ::grpc::ByteBuffer bytes;
  ::grpc::ProtoBufferWriter writer(&bytes, block, static_cast<int>(message.ByteSizeLong()));
  check(message.SerializeToZeroCopyStream(&writer), "a reply that cannot be written");
  return bytes;
}

/// A method whose reply has the fields of a JSON document. `before` and `after` put that into the
/// reply's field, where the document is not the reply itself.
template <class Message, class Reply>
Method document(std::string (*path)(const Message&), const char* before = "",
                const char* after = "") {
  return {
      .ask =
          [path](::grpc::ByteBuffer& message, std::optional<double>) {
            return HttpRequest{
                .method = "GET", .path = path(parsed<Message>(message)), .headers = {}, .body = ""};
          },
      .reply =
          [before, after](const HttpResponse& response) {
            Reply reply;
            google::protobuf::util::JsonParseOptions options;
            options.ignore_unknown_fields = true;
            const auto done = google::protobuf::util::JsonStringToMessage(
                before + response.body + after, &reply, options);
            check(done.ok(), fmt::format("a document that is no {}: {}", reply.GetTypeName(),
                                         done.ToString()));
            return bytes_of(reply);
          }};
}

Method open_to_all(Method method) {
  method.open = true;
  return method;
}

Method index_method() {
  Method method = document<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      [](const auto&) -> std::string { return "/v2/repository/index"; }, R"({"models":)", "}");
  method.ask = [](::grpc::ByteBuffer& message, std::optional<double>) {
    parsed<inference::RepositoryIndexRequest>(message);
    return HttpRequest{
        .method = "POST", .path = "/v2/repository/index", .headers = {}, .body = "{}"};
  };
  return method;
}

Method infer_method() {
  return {.large = true,
          .ask =
              [](::grpc::ByteBuffer& message, std::optional<double> left_s) {
                require_few_parts(message);
                return infer_request(parsed<inference::ModelInferRequest>(message), left_s);
              },
          .reply = [](const HttpResponse& response) { return bytes_of(infer_reply(response)); }};
}

std::map<std::string, Method> make_methods() {
  using namespace inference;
  return {{"ServerLive", open_to_all(document<ServerLiveRequest, ServerLiveResponse>(
                             [](const auto&) -> std::string { return "/v2/health/live"; }))},
          {"ServerReady", open_to_all(document<ServerReadyRequest, ServerReadyResponse>(
                              [](const auto&) -> std::string { return "/v2/health/ready"; }))},
          {"ServerMetadata", document<ServerMetadataRequest, ServerMetadataResponse>(
                                 [](const auto&) -> std::string { return "/v2"; })},
          {"ModelReady", document<ModelReadyRequest, ModelReadyResponse>([](const auto& asked) {
             return model_path(asked.name(), asked.version(), "/ready");
           })},
          {"ModelMetadata",
           document<ModelMetadataRequest, ModelMetadataResponse>(
               [](const auto& asked) { return model_path(asked.name(), asked.version(), ""); })},
          {"ModelConfig", document<ModelConfigRequest, ModelConfigResponse>(
                              [](const auto& asked) {
                                return model_path(asked.name(), asked.version(), "/config");
                              },
                              R"({"config":)", "}")},
          {"ModelStatistics",
           document<ModelStatisticsRequest, ModelStatisticsResponse>([](const auto& asked) {
             return asked.name().empty() ? "/v2/models/stats"
                                         : model_path(asked.name(), asked.version(), "/stats");
           })},
          {"RepositoryIndex", index_method()},
          {"ModelInfer", infer_method()}};
}

}  // namespace

const Method* find_method(const std::string& path) {
  static const std::map<std::string, Method> methods = make_methods();
  static const std::string service = "/inference.GRPCInferenceService/";
  if (!path.starts_with(service)) return nullptr;
  const auto found = methods.find(path.substr(service.size()));
  return found == methods.end() ? nullptr : &found->second;
}

}  // namespace lockstep::grpc
