// Why CPUs sum over two levels. Ranks of a node would each send the same sums through one network
// card. Over two levels a node's ranks add in shared memory first, and only owners of equal chunks
// talk across nodes: 2 (nodes - 1) messages a rank and bucket instead of 2 (ranks - 1), and a node
// sends as much as one rank of a flat all-reduce. On one node sums stay flat. From three ranks on,
// the bits of a flat sum depend on the size of buckets, because the owner of a chunk begins its
// sum. So a run notes the size that it chose, and a resume keeps it.
#include "comm/two_level/two_level_sum.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/nodes.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t line_floats = 16;     // chunks start at cache lines
constexpr std::size_t piece_of_sum = 8192;  // floats that stay in the cache while they are added

}  // namespace

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

}  // namespace lockstep::comm
