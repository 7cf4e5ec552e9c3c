#include "lockstep/comm/communicator.hpp"

#include <string>

#include "lockstep/device/host_stream.hpp"
#include "ports/mpi/all_reduce.hpp"
#include "ports/mpi/factories.hpp"

namespace lockstep::comm {
namespace {

constexpr int tag_pairs = 8192;  // MPI promises tags up to 32767

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, double deadline_s, RollCall& roll_call)
      : channel_{comm, deadline_s, roll_call} {
    must(MPI_Comm_rank(comm, &channel_.rank));
    must(MPI_Comm_size(comm, &channel_.world));
  }

  int rank() const override { return channel_.rank; }
  int world() const override { return channel_.world; }
  device::Stream& network() override { return network_; }

  void all_reduce_sum(float* data, std::size_t count, std::string_view name) override {
    if (channel_.world == 1 || count == 0) return;
    network_.put(std::make_unique<AllReduce>(channel_, data, count, 2 * next_, std::string(name)));
    next_ = (next_ + 1) % tag_pairs;
  }

  void progress() override { network_.advance(); }

 private:
  Channel channel_;
  device::HostStream network_;  // after the channel: its operations return the channel's blocks
  int next_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, double deadline_s,
                                                    RollCall& roll_call) {
  return std::make_unique<MpiCommunicator>(comm, deadline_s, roll_call);
}

}  // namespace lockstep::comm
