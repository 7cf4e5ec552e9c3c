#include "lockstep/comm/communicator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/comm/arguments.hpp"
#include "lockstep/comm/split.hpp"
#include "ports/mpi/channel.hpp"
#include "ports/mpi/direct.hpp"
#include "ports/mpi/duplicate.hpp"
#include "ports/mpi/factories.hpp"
#include "ports/mpi/relay.hpp"

namespace lockstep::comm {
namespace {

// MPI promises tags up to 32767. The collectives of a group are numbered alike on all its ranks,
// and the messages between two ranks alike on both.
constexpr int tag_pairs = 8192, message_tags = 8192;
constexpr int first_message_tag = 2 * tag_pairs;

/// The deadline of a wait that the caller makes.
class MpiWaitDeadline final : public WaitDeadline {
 public:
  MpiWaitDeadline(const Channel& channel, std::string phase, std::vector<int> awaited)
      : phase_(std::move(phase)),
        awaited_(std::move(awaited)),
        deadline_(channel.roll_call, channel.deadline_s, phase_, awaited_) {}
  void renew() override { deadline_.renew(); }
  void poll() override { deadline_.poll(); }

 private:
  std::string phase_;
  std::vector<int> awaited_;  // by their numbers in MPI's world
  RankDeadline deadline_;
};

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(Channel channel)
      : channel_(std::make_shared<Channel>(std::move(channel))),
        sent_(channel_->members.size()),
        received_(channel_->members.size()) {}

  int rank() const override { return channel_->rank; }
  int world() const override { return channel_->world; }
  device::Stream& network() override { return channel_->network->stream(); }
  void begin_step(std::uint64_t step) override { channel_->network->step = step; }
  std::unique_ptr<Communicator> split(std::optional<int> colour, int key,
                                      std::string_view name) override;

  void all_reduce(Elements data, Reduction reduction, std::string_view name,
                  device::Stream& stream) override {
    check_reducible(data, name);
    if (has_work(*this, data, name, stream)) put_direct(data, {reduction, true}, name);
  }

  void reduce_scatter(Elements data, Reduction reduction, std::string_view name,
                      device::Stream& stream) override {
    check_reducible(data, name);
    chunk_size(*this, data, name);
    if (has_work(*this, data, name, stream)) put_direct(data, {reduction, false}, name);
  }

  void all_gather(Elements data, std::string_view name, device::Stream& stream) override {
    chunk_size(*this, data, name);
    if (has_work(*this, data, name, stream)) put_direct(data, {std::nullopt, true}, name);
  }

  void broadcast(Elements data, int root, std::string_view name, device::Stream& stream) override {
    check_root(*this, root, name);
    if (!has_work(*this, data, name, stream)) return;
    put_relay(data, broadcast_route(rank(), root, world()), next_tags(), name);
  }

  void send(Elements data, int to, std::string_view name, device::Stream& stream) override {
    check_peer(*this, to, name);
    if (has_work(*this, data, name, stream))
      put_relay(data, {std::nullopt, {to}}, next_message(sent_, to), name);
  }

  void receive(Elements data, int from, std::string_view name, device::Stream& stream) override {
    check_peer(*this, from, name);
    if (has_work(*this, data, name, stream))
      put_relay(data, {from, {}}, next_message(received_, from), name);
  }

  void together(const std::function<void()>& calls) override { channel_->network->together(calls); }
  std::unique_ptr<WaitDeadline> make_deadline(std::string_view name,
                                              std::vector<int> awaited) override {
    for (int& rank : awaited) rank = channel_->in_mpi(rank);
    return std::make_unique<MpiWaitDeadline>(*channel_, channel_->phase(name), std::move(awaited));
  }
  void progress() override { channel_->network->stream().advance(); }

 private:
  void put_direct(Elements data, DirectWork work, std::string_view name) {
    const auto start = [channel = channel_, data, work, tag = next_tags(),
                        phase = channel_->phase(name)] {
      return std::make_unique<Direct>(*channel, data, work, tag, phase);
    };
    channel_->network->put(data, true, start);
  }

  void put_relay(Elements data, Route route, int tag, std::string_view name) {
    const bool writes = route.from.has_value();
    const auto start = [channel = channel_, data, route = std::move(route), tag,
                        phase = channel_->phase(name)] {
      return std::make_unique<Relay>(*channel, data, route, tag, phase);
    };
    channel_->network->put(data, writes, start);
  }

  int next_tags() { return 2 * (std::exchange(next_, (next_ + 1) % tag_pairs)); }

  static int next_message(std::vector<int>& counts, int peer) {
    int& count = counts[static_cast<std::size_t>(peer)];
    return first_message_tag + std::exchange(count, (count + 1) % message_tags);
  }

  std::shared_ptr<Channel> channel_;  // its operations may outlive this
  int next_ = 0;
  std::vector<int> sent_, received_;  ///< messages to and from each rank
};

// MPI_Comm_split would wait inside MPI. So the groups of a split share one duplicate of the old
// communicator, whose ranks have the numbers of MPI's world. The groups have no rank in common, so
// their messages do not mix. All groups of a split must split at the same time, because duplicating
// is collective in MPI's world. MPI_Finalize frees the duplicate, as it frees the world's.
std::unique_ptr<Communicator> MpiCommunicator::split(std::optional<int> colour, int key,
                                                     std::string_view name) {
  const SplitGroup asked = agree_on_split(*this, channel_->members, colour, key, name);
  Channel group = *channel_;
  int ranks = 1;
  must(MPI_Comm_size(channel_->comm, &ranks));
  if (ranks > 1) {
    const std::string phase = channel_->phase(fmt::format("the split into {}", name));
    RankDeadline deadline(channel_->roll_call, channel_->deadline_s, phase);
    group.comm = duplicate(channel_->comm, deadline);
  }
  if (!colour) return nullptr;
  group.group = name;
  group.members.clear();
  for (const int r : asked.ranks) {
    if (r == rank()) group.rank = static_cast<int>(group.members.size());
    group.members.push_back(channel_->in_mpi(r));
  }
  group.world = static_cast<int>(group.members.size());
  return std::make_unique<MpiCommunicator>(std::move(group));
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, double deadline_s,
                                                    RollCall& roll_call) {
  Channel world{comm, deadline_s, roll_call, std::make_shared<HostNetwork>(), {}};
  must(MPI_Comm_rank(comm, &world.rank));
  must(MPI_Comm_size(comm, &world.world));
  world.members.resize(static_cast<std::size_t>(world.world));
  std::iota(world.members.begin(), world.members.end(), 0);
  return std::make_unique<MpiCommunicator>(std::move(world));
}

}  // namespace lockstep::comm
