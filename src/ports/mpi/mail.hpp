#pragma once

#include "ports/mpi/call.hpp"

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::mpi {

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
  bool sent();                           ///< true when MPI needs none of the texts any more
  std::optional<Message> take(int tag);  ///< one that has arrived as a whole

 private:
  struct Outgoing {
    std::unique_ptr<std::string> text;  // must not move while MPI reads it
    std::vector<MPI_Request> requests;
  };

  /// A text whose beginning has arrived: it is the next one with its tag.
  struct Incoming {
    std::unique_ptr<Message> message;  // must not move while MPI writes it
    MPI_Request request = MPI_REQUEST_NULL;
  };
  void begin(int tag, Incoming& incoming);

  MPI_Comm comm_;
  std::list<Outgoing> outgoing_;
  std::map<int, Incoming> incoming_;  ///< by tag
};

}  // namespace lockstep::mpi
