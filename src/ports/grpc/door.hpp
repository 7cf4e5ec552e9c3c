#pragma once

#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <unistd.h>

#include "lockstep/base/owned.hpp"

namespace lockstep::grpc {

/// Takes connections for the library, and only `most_connections` at a time: the library would
/// take as many as the process may have descriptors. The library closes them and tells no one, so a
/// second descriptor of each shows when it has done so. When one more waits for a place, silent
/// ones give theirs, the longest silent first: those without a call after a second, others after
/// `silence_s`.
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
  /// Calls are computed for the client at this port, one more or less. On any thread. Two clients
  /// of one number share the count.
  void count_call(std::uint16_t client, int more);

 private:
  void work();
  void take_all();
  void make_place();
  unsigned patience_ms(std::uint16_t client) const;
  void listen(bool wanted);

  const std::size_t most_;
  const unsigned silence_s_;
  Descriptor listening_, events_;
  std::unique_ptr<Acceptor> acceptor_;
  std::map<int, std::uint16_t> taken_;  ///< the second descriptors, and the clients' ports
  mutable std::mutex mutex_;            // of the calls
  std::map<std::uint16_t, int> calls_;  ///< by the client's port
  bool listens_ = false;
  std::atomic<bool> closed_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::grpc
