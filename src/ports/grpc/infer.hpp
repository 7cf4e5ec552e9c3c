#pragma once

#include <optional>
#include <string>

#include <grpcpp/support/byte_buffer.h>
#include <inference.pb.h>

#include "lockstep/base/http.hpp"

namespace lockstep::grpc {

/// models/NAME[/versions/VERSION]WHAT. Throws RequestError 404 for a name that no path can have.
std::string model_path(const std::string& name, const std::string& version, const char* what);

/// Throws RequestError 400 for an inference's message of more parts than one has: reading it would
/// take many times its bytes.
void require_few_parts(::grpc::ByteBuffer& message);

/// The request whose body is JSON and then the tensors' bytes, and which wants the outputs as
/// bytes, too. Throws RequestError 400 naming the input: contents in two places, or for other
/// inputs, or a number that is no pixel.
HttpRequest infer_request(const inference::ModelInferRequest& message,
                          std::optional<double> left_s);

/// The reply, from the response to such a request.
inference::ModelInferResponse infer_reply(const HttpResponse& response);

}  // namespace lockstep::grpc
