#include "ports/mpi/fabric.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/comm/staging.hpp"
#include "lockstep/device/idle.hpp"

namespace lockstep::mpi {
namespace {

constexpr std::uint32_t numbers = 4096;  // MPI promises tags up to 32767
static_assert(comm::message_kinds * numbers <= 32768);

class MpiMessage final : public comm::Message {
 public:
  explicit MpiMessage(bool receives) : receives_(receives) {}

  /// It takes a block of `staging`.
  explicit MpiMessage(comm::Staging& staging)
      : receives_(true), staging_(&staging), block_(staging.take()) {
    data = block_->bytes.data();
  }

  // Messages are in flight here only when the world is about to end. MPI may still write into their
  // blocks, so these are not reused.
  ~MpiMessage() override {
    if (request == MPI_REQUEST_NULL) {
      if (block_) staging_->give_back(std::move(block_));
      return;
    }
    static_cast<void>(block_.release());
    if (receives_) MPI_Cancel(&request);
    MPI_Request_free(&request);
  }

  bool done() override {
    int done = 0, got = 0;
    MPI_Status status;
    must(MPI_Test(&request, &done, &status));
    if (done == 0) return false;
    if (receives_) must(MPI_Get_count(&status, MPI_BYTE, &got));
    bytes = static_cast<std::size_t>(got);
    return true;
  }

  std::byte* block() { return block_->bytes.data(); }
  MPI_Request request = MPI_REQUEST_NULL;

 private:
  const bool receives_;
  comm::Staging* staging_ = nullptr;
  std::unique_ptr<comm::Block> block_;
};

class MpiTransport final : public comm::Transport {
 public:
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {}

  std::unique_ptr<comm::Message> send(int to, comm::MessageTag tag, const void* data,
                                      std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>(false);
    must(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, in_mpi(tag), comm_,
                   &message->request));
    return message;
  }
  std::unique_ptr<comm::Message> expect(int from, comm::MessageTag tag, void* data,
                                        std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>(true);
    receive(*message, from, tag, data, bytes);
    return message;
  }
  std::unique_ptr<comm::Message> take(int from, comm::MessageTag tag, std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>(staging_);
    receive(*message, from, tag, message->block(), bytes);
    return message;
  }
  bool copies() const override { return false; }

 private:
  static int in_mpi(comm::MessageTag tag) {
    return static_cast<int>(tag.kind * numbers + tag.number % numbers);
  }
  void receive(MpiMessage& message, int from, comm::MessageTag tag, void* data, std::size_t bytes) {
    must(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, in_mpi(tag), comm_,
                   &message.request));
  }

  const MPI_Comm comm_;
  comm::Staging staging_;
};

/// Letters: sent without waiting, received once they have arrived.
class MpiFabric final : public comm::Fabric {
 public:
  explicit MpiFabric(MPI_Comm comm) : comm_(comm) {
    must(MPI_Comm_rank(comm, &rank_));
    must(MPI_Comm_size(comm, &world_));
  }

  // Letters are still in flight here only when the world is about to end. MPI may still use them,
  // so they are never freed.
  ~MpiFabric() override {
    for (Outgoing& letter : outgoing_) static_cast<void>(letter.text.release());
    for (Incoming& letter : incoming_)
      if (letter.letter) static_cast<void>(letter.letter.release());
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  void send(const std::vector<int>& ranks, comm::LetterKind kind, std::string text) override {
    check(text.size() <= INT_MAX, "a message between ranks is larger than 2 GiB");
    unsent();
    Outgoing& letter = outgoing_.emplace_back();
    letter.text = std::make_unique<std::string>(std::move(text));
    for (const int rank : ranks) {
      letter.requests.emplace_back(rank, MPI_REQUEST_NULL);
      must(MPI_Isend(letter.text->data(), static_cast<int>(letter.text->size()), MPI_BYTE, rank,
                     static_cast<int>(kind), comm_, &letter.requests.back().second));
    }
  }

  std::vector<int> unsent() override {
    std::vector<int> ranks;
    outgoing_.remove_if([&](Outgoing& letter) {
      std::erase_if(letter.requests, [](auto& request) { return finished(request.second); });
      for (const auto& [rank, request] : letter.requests) ranks.push_back(rank);
      return letter.requests.empty();
    });
    std::ranges::sort(ranks);
    const auto twice = std::ranges::unique(ranks);
    ranks.erase(twice.begin(), twice.end());
    return ranks;
  }

  std::optional<comm::Letter> take(comm::LetterKind kind) override {
    Incoming& incoming = incoming_[static_cast<std::size_t>(kind)];
    if (!incoming.letter) begin(static_cast<int>(kind), incoming);
    if (!incoming.letter || !finished(incoming.request)) return std::nullopt;
    idle_ = {};
    const std::unique_ptr<comm::Letter> letter = std::move(incoming.letter);
    return std::move(*letter);
  }

  void wait() override {
    if (meanwhile) meanwhile();
    idle_();
  }

  std::unique_ptr<comm::Transport> make_transport(comm::WaitDeadline& deadline) override {
    return std::make_unique<MpiTransport>(duplicate(comm_, [&] { deadline.poll(); }));
  }

 private:
  struct Outgoing {
    std::unique_ptr<std::string> text;  // must not move while MPI reads it
    std::vector<std::pair<int, MPI_Request>> requests{};
  };
  /// A letter whose beginning has arrived: it is the next one of its kind.
  struct Incoming {
    std::unique_ptr<comm::Letter> letter;  // must not move while MPI writes it
    MPI_Request request = MPI_REQUEST_NULL;
  };

  /// The rest of a long text comes only when its sender looks after it, so this does not wait.
  void begin(int tag, Incoming& incoming) {
    int found = 0, size = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    must(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &found, &handle, &status));
    if (found == 0) return;
    must(MPI_Get_count(&status, MPI_BYTE, &size));
    incoming.letter = std::make_unique<comm::Letter>(
        comm::Letter{status.MPI_SOURCE, std::string(static_cast<std::size_t>(size), '\0')});
    must(MPI_Imrecv(incoming.letter->text.data(), size, MPI_BYTE, &handle, &incoming.request));
  }

  const MPI_Comm comm_;
  int rank_ = 0, world_ = 1;
  device::Idle idle_;
  std::list<Outgoing> outgoing_;
  std::array<Incoming, comm::letter_kinds> incoming_;
};

}  // namespace

MPI_Comm duplicate(MPI_Comm comm, const std::function<void()>& poll) {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  must(MPI_Comm_idup(comm, &made, &request));
  for (device::Idle idle; !finished(request); idle()) poll();
  return made;
}

std::unique_ptr<comm::Fabric> make_mpi_fabric(MPI_Comm comm) {
  return std::make_unique<MpiFabric>(comm);
}

}  // namespace lockstep::mpi
