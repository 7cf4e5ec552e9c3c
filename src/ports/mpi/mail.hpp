#pragma once

#include "ports/mpi/call.hpp"

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::comm {

/// Texts between ranks, on one communicator: sent without waiting, received once they have arrived.
/// Texts from one rank with one tag keep their order.
class Mail {
 public:
  struct Message {
    int from = 0;
    std::string text;
  };

  explicit Mail(MPI_Comm comm) : comm_(comm) {}
  ~Mail();
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  void send(const std::vector<int>& ranks, int tag, std::string text);
  bool sent();  ///< true when MPI needs none of the texts any more
  std::optional<Message> take(int tag);

 private:
  struct Outgoing {
    std::unique_ptr<std::string> text;  // must not move while MPI reads it
    std::vector<MPI_Request> requests;
  };

  MPI_Comm comm_;
  std::list<Outgoing> outgoing_;
};

}  // namespace lockstep::comm
