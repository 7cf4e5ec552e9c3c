#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ports/tcp/meeting/handshake.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {

/// Where a rank listens, and the secret that lets other ranks in.
struct ListenerCard {
  Key secret{};
  std::uint16_t port = 0;
  std::vector<std::string> addresses;  ///< of the rank's machine, numeric

  static void fields(auto& self, auto&& visit) { visit(self.secret, self.port, self.addresses); }
};

/// One try to connect to a rank that listens. It tries one address after the other: for a second
/// until the connection is made, for four until a rank greets, and for four more until that rank,
/// which may compute between the two, lets this one in. It never blocks, so this rank can do other
/// work meanwhile.
class ConnectAttempt {
 public:
  /// `purpose` stands for the job in the hello.
  ConnectAttempt(const ListenerCard& card, std::string purpose, int rank, int world,
                 std::string node = {});
  /// Advances without waiting. Returns the wire once the listener has let this rank in.
  std::optional<Wire> poll();
  bool failed() const { return at_ >= addresses_.size() || !refusal_.empty(); }
  const std::string& address() const { return addresses_.at(at_); }  ///< the one being tried
  const std::string& refusal() const { return refusal_; }  ///< what a rank that listens has said
  const std::string& fault() const { return fault_; }      ///< at the last address that failed
  bool stood() const { return stood_; }  ///< at some address there was a connection
  void add_to(std::vector<pollfd>& polled) const;

 private:
  void try_next(std::size_t at);
  std::string hear();  ///< why the listener is not at this address
  std::string not_reached() const;

  Key secret_;
  std::uint16_t port_;
  std::vector<std::string> addresses_;
  Hello hello_;
  std::size_t at_ = 0;
  double began_s_ = 0;  ///< when the address was first tried, or its rank's greeting came
  Socket coming_;       ///< until the connection is made
  Wire wire_;
  std::optional<Nonce> server_;  ///< the listener's, after its first message
  Nonce mine_{};
  bool let_in_ = false, stood_ = false;
  std::string refusal_, fault_;
};

}  // namespace lockstep::tcp
