// Why CPUs sum over two levels. Ranks of a node would each send the same sums through one network
// card. Over two levels a node's ranks add in shared memory first, and only owners of equal chunks
// talk across nodes: 2 (nodes - 1) messages a rank and bucket instead of 2 (ranks - 1), and a node
// sends as much as one rank of a flat all-reduce. On one node sums stay flat. From three ranks on,
// the bits of a flat sum depend on the size of buckets, because the owner of a chunk begins its
// sum. So a run notes the size that it chose, and a resume keeps it.

#include "lockstep/comm/two_level/two_level.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "comm/combine.hpp"
#include "comm/two_level/node_segment.hpp"
#include "comm/two_level/overlay.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/comm/waits/absence.hpp"

namespace lockstep::comm {
namespace {

/// What the two-level sums of one communicator share.
struct TwoLevelChannel {
  Communicator& flat;
  std::unique_ptr<Communicator>
      across;  ///< the owners of one chunk on all nodes; null: none is ours
  NodeSegment segment;
  std::vector<int> node_ranks;  ///< by number on the node
  std::size_t owners;           ///< of chunks, on each node: its first ranks
  std::size_t part_floats;      ///< the most of one sum
  double deadline_s;
  std::uint64_t next = 0;         ///< sum
  std::vector<float> total = {};  ///< a piece's sum while it is added up
};

/// One sum over two levels, of at most the segment's slot. Ranks of a node add in float; 16 bits
/// round there once, and once more across nodes.
class TwoLevelSum final : public Overlay::Operation {
 public:
  TwoLevelSum(Overlay& overlay, std::shared_ptr<TwoLevelChannel> channel, Elements data,
              std::string name);
  bool advance() override;

 private:
  enum class State { giving, adding, across, arriving, taking, done };
  struct Chunk {
    std::size_t begin = 0, size = 0;
  };
  Chunk chunk_of(std::size_t owner) const;
  void widen(const Chunk& chunk, float* to) const;
  void round(const float* from, const Chunk& chunk);
  bool step();
  bool give();
  bool add();
  bool go_across();
  bool share();
  bool take();
  void wait_for_node();
  std::optional<Mark> awaited() const;

  std::shared_ptr<TwoLevelChannel> owned_channel_;
  TwoLevelChannel& channel_;
  NodeSegment& segment_;
  const Elements data_;
  const Combine combine_;
  std::string name_;
  std::uint64_t sum_;
  State state_ = State::giving;
  std::unique_ptr<WaitDeadline> deadline_;
  std::optional<Countdown> countdown_;
};

constexpr std::size_t line_floats = 16;     // chunks start at cache lines
constexpr std::size_t piece_of_sum = 8192;  // floats that stay in the cache while they are added

// The data is given at once if possible: then the other ranks need nothing more from this one until
// their chunks are summed.
TwoLevelSum::TwoLevelSum(Overlay& overlay, std::shared_ptr<TwoLevelChannel> channel, Elements data,
                         std::string name)
    : Operation(overlay, data),
      owned_channel_(std::move(channel)),
      channel_(*owned_channel_),
      segment_(channel_.segment),
      data_(data),
      combine_(combine_of(data.type, Reduction::sum)),
      name_(std::move(name)),
      sum_(channel_.next++) {
  step();
}

bool TwoLevelSum::advance() {
  bool moved = false;
  while (state_ != State::done && step()) moved = true;
  if (moved) {
    deadline_.reset();
    countdown_.reset();
    channel_.flat.activity.moved();
  } else {
    wait_for_node();
  }
  return state_ == State::done;
}

TwoLevelSum::Chunk TwoLevelSum::chunk_of(std::size_t owner) const {
  const std::size_t even = (data_.count + channel_.owners - 1) / channel_.owners;
  const std::size_t most = (even + line_floats - 1) / line_floats * line_floats;
  const std::size_t begin =
      std::min(data_.count, owner < channel_.owners ? most * owner : data_.count);
  return {begin, std::min(most, data_.count - begin)};
}

/// To and from the floats of a slot.
void TwoLevelSum::widen(const Chunk& chunk, float* to) const {
  const Elements from = data_.part(chunk.begin, chunk.size);
  if (combine_.widen) return combine_.widen(to, from.data, chunk.size);
  std::copy_n(static_cast<const float*>(from.data), chunk.size, to);
}

void TwoLevelSum::round(const float* from, const Chunk& chunk) {
  const Elements to = data_.part(chunk.begin, chunk.size);
  if (combine_.round) return combine_.round(to.data, from, chunk.size);
  std::copy_n(from, chunk.size, static_cast<float*>(to.data));
}

/// True when the operation has come to its next state.
bool TwoLevelSum::step() {
  const auto next = [this](bool moved, State state) {
    if (moved) state_ = state;
    return moved;
  };
  switch (state_) {
    case State::giving:
      return next(give(), State::adding);
    case State::adding:
      return next(add(), State::across);
    case State::across:
      return next(go_across(), State::arriving);
    case State::arriving:
      return next(share(), State::taking);
    case State::taking:
      return next(take(), State::done);
    case State::done:
      break;
  }
  return false;
}

bool TwoLevelSum::give() {
  if (!segment_.is_next(Mark::gave, sum_) || !owns_memory() || !segment_.slot_is_free(sum_))
    return false;
  widen({0, data_.count}, segment_.slot(segment_.mine(), sum_));
  segment_.tell(Mark::gave, sum_);
  return true;
}

/// Adds this rank's chunk of all ranks of the node, in the order of the ranks.
bool TwoLevelSum::add() {
  if (!segment_.all_have(Mark::gave, sum_)) return false;
  const auto add_floats = combine_of(ElementType::f32, Reduction::sum).combine;
  const Chunk chunk = chunk_of(segment_.mine());
  channel_.total.resize(piece_of_sum);
  for (std::size_t done = 0; done < chunk.size; done += piece_of_sum) {
    const std::size_t at = chunk.begin + done, size = std::min(piece_of_sum, chunk.size - done);
    std::copy_n(segment_.slot(0, sum_) + at, size, channel_.total.data());
    for (std::size_t rank = 1; rank < segment_.ranks(); ++rank)
      add_floats(channel_.total.data(), segment_.slot(rank, sum_) + at, size);
    round(channel_.total.data(), {at, size});
  }
  return true;
}

bool TwoLevelSum::go_across() {
  if (!has_turn()) return false;
  const Chunk chunk = chunk_of(segment_.mine());
  issue([&] {
    if (channel_.across)
      channel_.across->all_reduce(data_.part(chunk.begin, chunk.size), Reduction::sum, name_,
                                  channel_.across->network());
  });
  return true;
}

/// Shows the node the sum of this rank's chunk, in the place from which only this rank has read.
bool TwoLevelSum::share() {
  if (!segment_.is_next(Mark::summed, sum_) || !arrived()) return false;
  const Chunk chunk = chunk_of(segment_.mine());
  widen(chunk, segment_.slot(segment_.mine(), sum_) + chunk.begin);
  segment_.tell(Mark::summed, sum_);
  return true;
}

bool TwoLevelSum::take() {
  if (!segment_.is_next(Mark::took, sum_) || !segment_.all_have(Mark::summed, sum_)) return false;
  for (std::size_t owner = 0; owner < channel_.owners; ++owner) {
    const Chunk chunk = chunk_of(owner);
    if (owner == segment_.mine()) continue;
    round(segment_.slot(owner, sum_) + chunk.begin, chunk);
  }
  segment_.tell(Mark::took, sum_);
  return true;
}

/// What this operation needs from the ranks of the node; nothing while it waits for others.
std::optional<Mark> TwoLevelSum::awaited() const {
  if (state_ == State::adding) return Mark::gave;
  if (state_ == State::taking) return Mark::summed;
  return std::nullopt;
}

void TwoLevelSum::wait_for_node() {
  const std::optional<Mark> mark = awaited();
  if (!mark) return;
  if (!countdown_) {
    deadline_ = channel_.flat.make_deadline(name_, channel_.node_ranks);
    countdown_.emplace(channel_.deadline_s);
  }
  if (deadline_) return deadline_->poll();
  if (!countdown_->over()) return;
  std::vector<int> absent;
  for (const std::size_t rank : segment_.missing(*mark, sum_))
    absent.push_back(channel_.node_ranks[rank]);
  throw Error(fmt::format("{}: {} did not arrive within {} s", name_, rank_list(absent),
                          channel_.deadline_s),
              Ending::stuck);
}

}  // namespace

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
