#include "lockstep/base/grpc.hpp"

#include "lockstep/base/error.hpp"

namespace lockstep {

void require_grpc() {
  throw InputError("this program was built without gRPC: build it with make GRPC=1");
}

std::unique_ptr<HttpServer> make_grpc_server(const HttpSpec&, HttpService&) {
  require_grpc();
  return nullptr;
}

}  // namespace lockstep
