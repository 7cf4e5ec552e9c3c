#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/direct/direct.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/agreement.hpp"

namespace lockstep::comm {
namespace {

/// What a rank wants of a split.
struct Wish {
  std::int32_t coloured = 0, colour = 0, key = 0;
};
constexpr std::size_t wish_words = sizeof(Wish) / sizeof(std::int32_t);

class DirectCommunicator final : public Communicator {
 public:
  DirectCommunicator(std::shared_ptr<DirectHub> hub, DirectGroup group)
      : Communicator(hub->network.activity),
        hub_(std::move(hub)),
        group_(std::make_shared<DirectGroup>(std::move(group))) {}

  int rank() const override { return group_->rank; }
  int world() const override { return group_->world(); }
  device::Stream& network() override { return hub_->network.stream(); }
  void begin_step(std::uint64_t step) override { *hub_->network.step = step; }
  std::unique_ptr<Communicator> split(std::optional<int> colour, int key,
                                      std::string_view name) override;
  std::unique_ptr<Communicator> channel(std::string_view name) override;

  void all_reduce(Elements data, Reduction reduction, std::string_view name,
                  device::Stream& stream) override {
    check_reducible(data, name);
    if (has_work(*this, data, name, stream))
      put(data, true, {.reduction = reduction, .gathers = true}, name);
  }

  void reduce_scatter(Elements data, Reduction reduction, std::string_view name,
                      device::Stream& stream) override {
    check_reducible(data, name);
    chunk_size(*this, data, name);
    if (has_work(*this, data, name, stream)) put(data, true, {.reduction = reduction}, name);
  }

  void all_gather(Elements data, std::string_view name, device::Stream& stream) override {
    chunk_size(*this, data, name);
    if (has_work(*this, data, name, stream)) put(data, true, {.gathers = true}, name);
  }

  void broadcast(Elements data, int root, std::string_view name, device::Stream& stream) override {
    check_root(*this, root, name);
    if (has_work(*this, data, name, stream))
      put(data, rank() != root, {.root = root, .gathers = true}, name);
  }

  void send(Elements data, int to, std::string_view name, device::Stream& stream) override {
    check_peer(*this, to, name);
    if (has_work(*this, data, name, stream))
      put(data, false, {.root = rank()}, {partner(to, hub_->sends)}, name);
  }

  void receive(Elements data, int from, std::string_view name, device::Stream& stream) override {
    check_peer(*this, from, name);
    if (has_work(*this, data, name, stream))
      put(data, true, {.root = from}, {partner(from, hub_->receives)}, name);
  }

  void together(const std::function<void()>& calls) override {
    hub_->network.together(calls);
    progress();
  }
  std::unique_ptr<WaitDeadline> make_deadline(std::string_view name,
                                              std::vector<int> awaited) override;
  void progress() override { hub_->network.stream().advance(); }

 private:
  int in_world(int member) const { return group_->members.at(static_cast<std::size_t>(member)); }
  Partner partner(int member, std::vector<std::uint32_t>& counts) const {
    return {member, in_world(member), counts[static_cast<std::size_t>(in_world(member))]++};
  }

  /// A collective.
  void put(Elements data, bool writes, DirectWork work, std::string_view name) {
    std::vector<Partner> others;
    for (int i = 1; i < world(); ++i)
      others.push_back(partner((rank() + i) % world(), hub_->collectives));
    put(data, writes, work, std::move(others), name);
  }

  void put(Elements data, bool writes, DirectWork work, std::vector<Partner> partners,
           std::string_view name) {
    const bool copies = hub_->transport->copies();
    const auto start = [group = group_, data, work, partners = std::move(partners),
                        phase = hub_->network.phase(name, group_->name)] {
      return std::make_unique<Direct>(group, data, work, partners, phase);
    };
    hub_->network.put(data, writes, !copies, start);
    if (copies) progress();
  }

  std::shared_ptr<DirectHub> hub_;
  std::shared_ptr<DirectGroup> group_;  // its operations may outlive this
};

std::unique_ptr<WaitDeadline> DirectCommunicator::make_deadline(std::string_view name,
                                                                std::vector<int> awaited) {
  if (!hub_->transport) return nullptr;
  std::erase(awaited, rank());
  for (int& rank : awaited) rank = in_world(rank);
  std::sort(awaited.begin(), awaited.end());
  return hub_->deadline(hub_->network.phase(name, group_->name),
                        [awaited = std::move(awaited)] { return awaited; });
}

std::unique_ptr<Communicator> DirectCommunicator::split(std::optional<int> colour, int key,
                                                        std::string_view name) {
  std::vector<Wish> wishes(group_->members.size());
  wishes[static_cast<std::size_t>(rank())] = {colour.has_value(), colour.value_or(0), key};
  const std::string phase = fmt::format("the split into {}", name);
  all_gather({wishes.data(), wish_words * wishes.size(), ElementType::i32}, phase, network());
  network().synchronize();
  std::vector<int> mates;  // numbers in this group
  for (int r = 0; r < world(); ++r) {
    const Wish& wish = wishes[static_cast<std::size_t>(r)];
    require(wish.coloured == 0 || wish.colour >= 0,
            fmt::format("{}: rank {} has the colour {}; a colour is 0 or more", phase, in_world(r),
                        wish.colour));
    if (colour && wish.coloured != 0 && wish.colour == *colour) mates.push_back(r);
  }
  if (!colour) return nullptr;
  std::stable_sort(mates.begin(), mates.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  DirectGroup group{.hub = hub_.get(), .name = std::string(name)};
  for (const int mate : mates) {
    if (mate == rank()) group.rank = group.world();
    group.members.push_back(in_world(mate));
  }
  return std::make_unique<DirectCommunicator>(hub_, std::move(group));
}

std::unique_ptr<Communicator> DirectCommunicator::channel(std::string_view name) {
  auto hub =
      std::make_shared<DirectHub>(hub_->sends.size(), hub_->network.activity, hub_->network.step);
  hub->deadline = hub_->deadline;
  if (hub_->transport) {
    std::vector<int> others = group_->members;
    std::erase(others, in_world(rank()));
    std::ranges::sort(others);
    const auto deadline = hub_->deadline(fmt::format("the channel {}", name),
                                         [others = std::move(others)] { return others; });
    hub->transport = hub_->transport->make_other(*deadline);
  }
  DirectGroup group = *group_;
  group.hub = hub.get();
  group.name = name;
  return std::make_unique<DirectCommunicator>(std::move(hub), std::move(group));
}

}  // namespace

std::unique_ptr<Communicator> Communicator::channel(std::string_view name) {
  throw InputError(fmt::format("{}: channels are between ranks that compute on CPUs", name));
}

std::unique_ptr<Communicator> make_direct_communicator(std::unique_ptr<Transport> transport,
                                                       MakeDeadline deadline, int rank, int world,
                                                       const ActivityTracker& activity) {
  auto hub = std::make_shared<DirectHub>(static_cast<std::size_t>(world), activity);
  hub->transport = std::move(transport);
  hub->deadline = std::move(deadline);
  DirectGroup group{.hub = hub.get(), .name = {}, .rank = rank};
  group.members.resize(static_cast<std::size_t>(world));
  std::iota(group.members.begin(), group.members.end(), 0);
  return std::make_unique<DirectCommunicator>(std::move(hub), std::move(group));
}

}  // namespace lockstep::comm
