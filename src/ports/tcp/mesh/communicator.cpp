#include "lockstep/comm/worlds/tcp_communicator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/arguments.hpp"
#include "lockstep/comm/split.hpp"
#include "ports/tcp/mesh/direct.hpp"

namespace lockstep::comm {
namespace {

/// The deadline of a wait that the caller makes.
class TcpWaitDeadline final : public WaitDeadline {
 public:
  TcpWaitDeadline(std::shared_ptr<MeshHub> hub, std::string phase, std::vector<int> awaited)
      : hub_(std::move(hub)),
        phase_(std::move(phase)),
        awaited_(std::move(awaited)),
        deadline_(*hub_, phase_) {}
  void renew() override { deadline_.renew(); }
  void poll() override {
    const bool due = deadline_.due();
    if (due || hub_->mesh->connecting()) hub_->mesh->move();  // answers other ranks
    if (due) deadline_.look(awaited_);
  }

 private:
  const std::shared_ptr<MeshHub> hub_;
  const std::string phase_;
  const std::vector<int> awaited_;  // by their numbers in the world
  MeshDeadline deadline_;
};

class TcpCommunicator final : public Communicator {
 public:
  TcpCommunicator(std::shared_ptr<MeshHub> hub, MeshGroup group)
      : hub_(std::move(hub)), group_(std::make_shared<MeshGroup>(std::move(group))) {}

  int rank() const override { return group_->rank; }
  int world() const override { return group_->world(); }
  device::Stream& network() override { return hub_->network.stream(); }
  void begin_step(std::uint64_t step) override { hub_->network.step = step; }
  std::unique_ptr<Communicator> split(std::optional<int> colour, int key,
                                      std::string_view name) override;

  void all_reduce(Elements data, Reduction reduction, std::string_view name,
                  device::Stream& stream) override {
    check_reducible(data, name);
    if (has_work(*this, data, name, stream))
      put<MeshReduction>(data, true, collective(), name, reduction, true);
  }

  void reduce_scatter(Elements data, Reduction reduction, std::string_view name,
                      device::Stream& stream) override {
    check_reducible(data, name);
    chunk_size(*this, data, name);
    if (has_work(*this, data, name, stream))
      put<MeshReduction>(data, true, collective(), name, reduction, false);
  }

  void all_gather(Elements data, std::string_view name, device::Stream& stream) override {
    chunk_size(*this, data, name);
    if (has_work(*this, data, name, stream)) put<MeshGathering>(data, true, collective(), name);
  }

  void broadcast(Elements data, int root, std::string_view name, device::Stream& stream) override {
    check_root(*this, root, name);
    if (has_work(*this, data, name, stream))
      put<MeshBroadcast>(data, rank() != root, collective(), name, root);
  }

  void send(Elements data, int to, std::string_view name, device::Stream& stream) override {
    check_peer(*this, to, name);
    if (has_work(*this, data, name, stream))
      put<MeshTransfer>(data, false, message(group_->sent[to]), name, to, true);
  }

  void receive(Elements data, int from, std::string_view name, device::Stream& stream) override {
    check_peer(*this, from, name);
    if (has_work(*this, data, name, stream))
      put<MeshTransfer>(data, true, message(group_->received[from]), name, from, false);
  }

  void together(const std::function<void()>& calls) override {
    hub_->network.together(calls);
    progress();
  }
  std::unique_ptr<WaitDeadline> make_deadline(std::string_view name,
                                              std::vector<int> awaited) override;
  void progress() override { hub_->network.stream().advance(); }

 private:
  template <class Operation, class... Details>
  void put(Elements data, bool writes, MeshTag tag, std::string_view name, Details... details) {
    const auto start = [group = group_, tag, data, details...,
                        phase = hub_->network.phase(name, group_->name)] {
      return std::make_unique<Operation>(group, tag, phase, data, details...);
    };
    hub_->network.put(data, writes, start);
    progress();
  }

  // All ranks of a group number its collectives alike, and two ranks their messages.
  MeshTag collective() {
    return {2 * static_cast<std::uint32_t>(group_->number), group_->collectives++};
  }
  MeshTag message(std::uint32_t& count) const {
    return {2 * static_cast<std::uint32_t>(group_->number) + 1, count++};
  }

  std::shared_ptr<MeshHub> hub_;
  std::shared_ptr<MeshGroup> group_;
};

std::unique_ptr<WaitDeadline> TcpCommunicator::make_deadline(std::string_view name,
                                                             std::vector<int> awaited) {
  if (!hub_->mesh) return nullptr;
  std::erase(awaited, rank());
  for (int& rank : awaited) rank = group_->members.at(static_cast<std::size_t>(rank));
  std::sort(awaited.begin(), awaited.end());
  return std::make_unique<TcpWaitDeadline>(hub_, hub_->network.phase(name, group_->name),
                                           std::move(awaited));
}

std::unique_ptr<Communicator> TcpCommunicator::split(std::optional<int> colour, int key,
                                                     std::string_view name) {
  const SplitGroup asked =
      agree_on_split(*this, group_->members, colour, key, name, hub_->next_group);
  MeshGroup group;
  group.hub = hub_.get();
  group.name = name;
  group.number = asked.number;
  hub_->next_group = group.number + 1;
  if (!colour) return nullptr;
  for (const int r : asked.ranks) {
    if (r == rank()) group.rank = group.world();
    group.members.push_back(group_->members[static_cast<std::size_t>(r)]);
  }
  return std::make_unique<TcpCommunicator>(hub_, std::move(group));
}

}  // namespace

std::unique_ptr<Communicator> make_tcp_communicator(Control& control, const TcpSpec& spec) {
  auto hub = std::make_shared<MeshHub>();
  hub->deadline_s = spec.deadline_s;
  hub->find_absence = spec.find_absence;
  if (control.world() > 1) hub->mesh.emplace(control, spec.host, hub->staging);
  MeshGroup world;
  world.hub = hub.get();
  world.rank = control.rank();
  world.members.resize(static_cast<std::size_t>(control.world()));
  std::iota(world.members.begin(), world.members.end(), 0);
  return std::make_unique<TcpCommunicator>(std::move(hub), std::move(world));
}

}  // namespace lockstep::comm
