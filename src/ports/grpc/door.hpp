#pragma once

#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include <unistd.h>

#include "lockstep/base/owned.hpp"

namespace lockstep::grpc {

/// Takes connections for the library, and only `most_connections` at a time: the library would
/// take as many as the process may have descriptors. The library closes them and tells no one, so a
/// second descriptor of each shows when it has done so. With no place left, those are closed over
/// which nothing has come or gone for `silence_s`.
class Door {
 public:
  using Acceptor = ::grpc::experimental::ExternalConnectionAcceptor;
  /// Listens, and takes nothing before open(). Throws InputError naming the address when nothing
  /// can listen there.
  Door(const std::string& host, std::uint16_t port, std::size_t most_connections,
       unsigned silence_s);
  ~Door() { close(); }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  std::uint16_t port() const;
  void open(std::unique_ptr<Acceptor> acceptor);
  void close();  ///< from now on it takes none

 private:
  using Descriptor = Owned<int, ::close, -1>;
  void work();
  void take_all();
  void end_silent();
  void listen(bool wanted);

  const std::size_t most_;
  const unsigned silence_s_;
  Descriptor listening_, events_;
  std::unique_ptr<Acceptor> acceptor_;
  std::set<int> taken_;  ///< the second descriptors
  bool listens_ = false;
  std::atomic<bool> closed_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::grpc
