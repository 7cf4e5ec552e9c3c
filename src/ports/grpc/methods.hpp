#pragma once

#include <functional>
#include <optional>
#include <string>

#include <grpcpp/support/byte_buffer.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/http.hpp"

// The methods of the protocol's service, each as a request over HTTP and its response.
namespace lockstep::grpc {

/// What a client is told without asking the service: a status of HTTP and one sentence.
class Refusal : public InputError {
 public:
  Refusal(unsigned status, const std::string& what) : InputError(what), status_(status) {}
  unsigned status() const { return status_; }

 private:
  unsigned status_;
};

struct Method {
  bool open = false;  ///< also for those without a token
  /// The request that a message is. `left_s`: until the call's deadline. Throws Refusal.
  std::function<HttpRequest(::grpc::ByteBuffer& message, std::optional<double> left_s)> ask;
  /// The reply that a response without an error is.
  std::function<::grpc::ByteBuffer(const HttpResponse& response)> reply;
};

/// By its path, "/inference.GRPCInferenceService/ModelInfer"; null where there is none.
const Method* find_method(const std::string& path);

}  // namespace lockstep::grpc
