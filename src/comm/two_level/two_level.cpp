#include "lockstep/comm/two_level/two_level.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "comm/two_level/two_level_sum.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/agreement.hpp"

namespace lockstep::comm {
namespace {

class TwoLevelCommunicator final : public OverlaidCommunicator {
 public:
  TwoLevelCommunicator(std::shared_ptr<Overlay> overlay, std::shared_ptr<Communicator> flat,
                       std::shared_ptr<TwoLevelChannel> channel)
      : OverlaidCommunicator(std::move(overlay), std::move(flat)), channel_(std::move(channel)) {}

  void all_reduce(Elements data, Reduction reduction, std::string_view name,
                  device::Stream& stream) override {
    const bool floats = data.type == ElementType::f32 || data.type == ElementType::f16 ||
                        data.type == ElementType::bf16;
    if (!floats || reduction != Reduction::sum)
      return OverlaidCommunicator::all_reduce(data, reduction, name, stream);
    if (!has_work(*this, data, name, stream)) return;
    for (std::size_t done = 0; done < data.count; done += channel_->part_floats) {
      const Elements part = data.part(done, std::min(channel_->part_floats, data.count - done));
      overlay().stream().put(
          std::make_unique<TwoLevelSum>(overlay(), channel_, part, std::string(name)));
    }
  }

 private:
  std::shared_ptr<TwoLevelChannel> channel_;  // its operations may outlive this
};

/// Data is summed part by part, so that nodes add while the network moves. Parts are large enough
/// that each message between owners is a full one: cutting then makes no more messages.
std::size_t part_floats(std::size_t owners) {
  constexpr std::size_t least = 1 << 20, message = 1 << 15;
  return std::max(least, message * owners);
}

/// The ranks of the node that has the fewest.
std::size_t fewest_ranks(const Nodes& nodes) {
  std::size_t fewest = nodes.world();
  for (std::size_t node = 0; node < nodes.count(); ++node)
    fewest = std::min(fewest, nodes.ranks_of(node).size());
  return fewest;
}

/// The first rank of each node creates the memory, the others attach it. Empty, with the reason,
/// where that failed on any node. Collective.
std::optional<SharedMemory> share_memory(Control& control, const Nodes& nodes, std::size_t bytes,
                                         std::string& obstacle) {
  const int rank = control.rank();
  std::optional<SharedMemory> memory;
  std::string failure;
  const auto attempt = [&](const auto& get) {
    try {
      memory.emplace(get());
    } catch (const Error& error) {
      failure = fmt::format("rank {}: {}", rank, error.what());
    }
  };
  if (nodes.leads_node(rank)) attempt([&] { return SharedMemory::create(bytes); });
  const auto addresses = control.gather(memory ? memory->address() : "", "shared memory of nodes");
  const int leader = nodes.ranks_of(nodes.node_of(rank)).front();
  const std::string& address = addresses[static_cast<std::size_t>(leader)];
  if (rank != leader && !address.empty())
    attempt([&] { return SharedMemory::attach(address, bytes); });
  obstacle = control.combine(failure, "attaching shared memory", [](const auto& by_rank) {
    const auto first = std::find_if(by_rank.begin(), by_rank.end(),
                                    [](const std::string& text) { return !text.empty(); });
    return first == by_rank.end() ? std::string() : *first;
  });
  if (!obstacle.empty()) return std::nullopt;
  memory->hide();
  return memory;
}

}  // namespace

bool has_two_levels(const Nodes& nodes) {
  return nodes.count() > 1 && nodes.world() > nodes.count();
}

TwoLevel make_two_level(Communicator& flat, Control& control, const Nodes& nodes,
                        const TwoLevelSpec& spec) {
  const int rank = flat.rank();
  const std::size_t mine = nodes.local_index(rank), ranks = nodes.local_size(rank);
  TwoLevel made;
  std::optional<SharedMemory> memory =
      share_memory(control, nodes, NodeSegment::bytes(ranks, spec.most_floats), made.obstacle);
  if (!memory) return made;
  const std::size_t owners = fewest_ranks(nodes);
  const std::optional<int> colour =
      mine < owners ? std::optional(static_cast<int>(mine)) : std::nullopt;
  auto across = flat.split(colour, static_cast<int>(nodes.node_of(rank)), "nodes");
  const auto channel = std::make_shared<TwoLevelChannel>(TwoLevelChannel{
      .flat = flat,
      .across = std::move(across),
      .segment = NodeSegment(std::move(*memory), ranks, mine, spec.most_floats),
      .node_ranks = nodes.ranks_of(nodes.node_of(rank)),
      .owners = owners,
      .part_floats = std::min(spec.most_floats, part_floats(owners * nodes.count())),
      .deadline_s = spec.deadline_s});
  // The caller owns `flat`.
  const std::shared_ptr<Communicator> below(std::shared_ptr<void>(), &flat);
  made.communicator =
      std::make_unique<TwoLevelCommunicator>(std::make_shared<Overlay>(flat), below, channel);
  return made;
}

std::unique_ptr<Communicator> two_level_or_flat(Communicator& flat, Control& control,
                                                const Nodes& nodes, const TwoLevelSpec& spec,
                                                std::string_view asked) {
  TwoLevel made = make_two_level(flat, control, nodes, spec);
  if (made.communicator) return std::move(made.communicator);
  const std::string why = "the ranks of a node cannot share memory: " + made.obstacle;
  require(asked.empty(), fmt::format("{}: {}", asked, why));
  log::info("all-reduces are flat: " + why);
  return nullptr;
}

}  // namespace lockstep::comm
