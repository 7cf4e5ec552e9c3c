#include "ports/mpi/mail.hpp"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <utility>

namespace lockstep::mpi {

// Texts are still in flight here only when the world is about to end. MPI may still use them, so
// they are never freed.
Mail::~Mail() {
  for (Outgoing& message : outgoing_) static_cast<void>(message.text.release());
  for (auto& [tag, incoming] : incoming_)
    if (incoming.message) static_cast<void>(incoming.message.release());
}

void Mail::send(const std::vector<int>& ranks, int tag, std::string text) {
  check(text.size() <= INT_MAX, "a message between ranks is larger than 2 GiB");
  sent();
  Outgoing& message = outgoing_.emplace_back();
  message.text = std::make_unique<std::string>(std::move(text));
  for (const int rank : ranks)
    must(MPI_Isend(message.text->data(), static_cast<int>(message.text->size()), MPI_BYTE, rank,
                   tag, comm_, &message.requests.emplace_back(MPI_REQUEST_NULL)));
}

bool Mail::sent() {
  outgoing_.remove_if([](Outgoing& message) {
    return std::all_of(message.requests.begin(), message.requests.end(),
                       [](MPI_Request& request) { return finished(request); });
  });
  return outgoing_.empty();
}

std::optional<Mail::Message> Mail::take(int tag) {
  Incoming& incoming = incoming_[tag];
  if (!incoming.message) begin(tag, incoming);
  if (!incoming.message || !finished(incoming.request)) return std::nullopt;
  const std::unique_ptr<Message> message = std::move(incoming.message);
  return std::move(*message);
}

/// The rest of a long text comes only when its sender looks after it, so this does not wait.
void Mail::begin(int tag, Incoming& incoming) {
  int found = 0, size = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  must(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &found, &handle, &status));
  if (found == 0) return;
  must(MPI_Get_count(&status, MPI_BYTE, &size));
  incoming.message = std::make_unique<Message>(
      Message{status.MPI_SOURCE, std::string(static_cast<std::size_t>(size), '\0')});
  must(MPI_Imrecv(incoming.message->text.data(), size, MPI_BYTE, &handle, &incoming.request));
}

}  // namespace lockstep::mpi
