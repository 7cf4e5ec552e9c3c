#include "ports/grpc/methods.hpp"

#include <map>

#include <fmt/core.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>
#include <inference.pb.h>

#include "ports/grpc/infer.hpp"

namespace lockstep::grpc {
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
