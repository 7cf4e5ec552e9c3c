#include "lockstep/comm/transport.hpp"

#include <utility>

#include "lockstep/comm/staging.hpp"
#include "ports/mpi/factories.hpp"
#include "ports/mpi/rank_deadline.hpp"

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
  MpiTransport(MPI_Comm comm, double deadline_s, RollCall& roll_call)
      : comm_(comm), deadline_s_(deadline_s), roll_call_(roll_call) {}

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
  std::unique_ptr<comm::WaitDeadline> deadline(std::string phase, comm::Awaited awaited) override {
    return std::make_unique<RankDeadline>(roll_call_, deadline_s_, std::move(phase),
                                          std::move(awaited));
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
  const double deadline_s_;
  RollCall& roll_call_;
  comm::Staging staging_;
};

}  // namespace

std::unique_ptr<comm::Communicator> make_mpi_communicator(MPI_Comm comm, double deadline_s,
                                                          RollCall& roll_call,
                                                          const comm::ActivityTracker& activity) {
  int rank = 0, world = 1;
  must(MPI_Comm_rank(comm, &rank));
  must(MPI_Comm_size(comm, &world));
  return comm::make_direct_communicator(std::make_unique<MpiTransport>(comm, deadline_s, roll_call),
                                        rank, world, activity);
}

}  // namespace lockstep::mpi
