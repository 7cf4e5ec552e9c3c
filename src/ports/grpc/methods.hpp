#pragma once

#include <functional>
#include <optional>
#include <string>

#include <grpcpp/support/byte_buffer.h>

#include "lockstep/base/http.hpp"

// The methods of the protocol's service, each as a request over HTTP and its response.
namespace lockstep::grpc {

struct Method {
  bool open = false;   ///< also for those without a token
  bool large = false;  ///< its messages may be, so they may take their time
  /// The request that a message is. `left_s`: until the call's deadline. Throws RequestError.
  std::function<HttpRequest(::grpc::ByteBuffer& message, std::optional<double> left_s)> ask;
  /// The reply that a response without an error is.
  std::function<::grpc::ByteBuffer(const HttpResponse& response)> reply;
};

/// By its path, "/inference.GRPCInferenceService/ModelInfer"; null where there is none.
const Method* find_method(const std::string& path);

}  // namespace lockstep::grpc
