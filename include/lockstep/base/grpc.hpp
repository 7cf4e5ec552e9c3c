#pragma once

#include <memory>

#include "lockstep/base/http.hpp"

// The Open Inference Protocol over gRPC, in front of a service that answers it over HTTP. Only a
// program that was built with `make GRPC=1` has it.
namespace lockstep {

/// Throws InputError in a program that does not have it.
void require_grpc();

/// Asks `service` for each call what a client would ask over HTTP, and makes its response the
/// reply. A call's deadline is the request's parameter `timeout`, its metadata `authorization` the
/// header, its message the body. It is an open request when that has come; `most_connections`
/// limits connections, such calls, and calls whose message is still to come. `service` must outlive
/// the server; a call without a response when that ends gets 503 (UNAVAILABLE). Takes no Unix
/// socket and no compressed messages. Throws InputError naming the address when nothing can listen
/// there.
std::unique_ptr<HttpServer> make_grpc_server(const HttpSpec& spec, HttpService& service);

}  // namespace lockstep
