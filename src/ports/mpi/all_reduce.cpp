#include "ports/mpi/all_reduce.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/comm/activity.hpp"
#include "ports/mpi/add.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t line_floats = 16;    // chunks start at cache lines
constexpr std::size_t least_chunk = 1024;  // below this, one owner is faster than many messages
constexpr std::size_t fewest_slots = 4, most_slots = 16;

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

/// Abandons a message of a reduction that failed.
void abandon(MPI_Request& request, bool receiving) {
  if (request == MPI_REQUEST_NULL) return;
  if (receiving) MPI_Cancel(&request);
  MPI_Request_free(&request);
}

}  // namespace

AllReduce::AllReduce(Channel& channel, float* data, std::size_t count, int tag, std::string name)
    : channel_(channel),
      data_(data),
      count_(count),
      tag_(tag),
      name_(std::move(name)),
      deadline_(channel.roll_call, channel.deadline_s, name_),
      mine_(pieces_of(channel.rank)) {
  for (int i = 1; i < channel_.world; ++i) {
    Owner& owner = owners_.emplace_back();
    owner.rank = (channel_.rank + i) % channel_.world;
    owner.pieces = pieces_of(owner.rank);
    for (const Span& piece : owner.pieces)
      must(MPI_Isend(piece.data, piece.count, MPI_FLOAT, owner.rank, tag_, channel_.comm,
                     &owner.requests.emplace_back(MPI_REQUEST_NULL)));
  }
}

// Messages are in flight here only when the world is about to end. MPI may still write into their
// blocks, so these are not reused.
AllReduce::~AllReduce() {
  for (Slot& slot : slots_) {
    if (slot.request != MPI_REQUEST_NULL) static_cast<void>(slot.block.release());
    abandon(slot.request, true);
  }
  for (Owner& owner : owners_)
    for (std::size_t i = 0; i < owner.requests.size(); ++i)
      abandon(owner.requests[i], i < owner.given);
  for (MPI_Request& request : shares_) abandon(request, false);
}

bool AllReduce::advance() {
  if (slots_.empty() && added_ < parts()) open_slots();
  bool moved = false;
  for (bool again = true; again; moved = moved || again) {
    again = add_parts();
    for (Owner& owner : owners_) again = exchange(owner) || again;
    for (; shared_ < shares_.size() && finished(shares_[shared_]); ++shared_) again = true;
  }
  if (done()) return true;
  if (moved) {
    deadline_.renew();
    activity::moved();
  } else {
    deadline_.poll();
  }
  return false;
}

std::vector<AllReduce::Span> AllReduce::pieces_of(int rank) const {
  const std::size_t world = static_cast<std::size_t>(channel_.world);
  const std::size_t even = divide_up(divide_up(count_, world), line_floats) * line_floats;
  const std::size_t chunk = std::max(even, least_chunk);
  const std::size_t begin = std::min(count_, chunk * static_cast<std::size_t>(rank));
  const std::size_t end = std::min(count_, begin + chunk);
  std::vector<Span> pieces;
  for (std::size_t at = begin; at < end; at += piece_floats)
    pieces.push_back({data_ + at, static_cast<int>(std::min(piece_floats, end - at))});
  return pieces;
}

/// Not earlier, when the reduction was put into the stream: queued reductions need no blocks, and
/// the few blocks in use stay in the cache.
void AllReduce::open_slots() {
  slots_.resize(std::min(parts(), std::clamp(owners_.size(), fewest_slots, most_slots)));
  for (Slot& slot : slots_) slot.block = channel_.staging.take();
  for (std::size_t i = 0; i < slots_.size(); ++i) receive_part();
}

void AllReduce::close_slots() {
  for (Slot& slot : slots_) channel_.staging.give_back(std::move(slot.block));
  slots_.clear();
}

void AllReduce::receive_part() {
  if (expected_ == parts()) return;
  const Span& piece = mine_[expected_ / owners_.size()];
  Slot& slot = slots_[expected_ % slots_.size()];
  must(MPI_Irecv(slot.block->values.data(), piece.count, MPI_FLOAT,
                 owners_[expected_ % owners_.size()].rank, tag_, channel_.comm, &slot.request));
  ++expected_;
}

/// Adds the parts that have arrived, in their fixed order, and sends the sums that this completes.
bool AllReduce::add_parts() {
  bool moved = false;
  for (; added_ < expected_; moved = true) {
    Slot& slot = slots_[added_ % slots_.size()];
    if (!finished(slot.request)) break;
    const Span& piece = mine_[added_ / owners_.size()];
    add(piece.data, slot.block->values.data(), static_cast<std::size_t>(piece.count));
    ++added_;
    if (added_ % owners_.size() == 0) share(piece);
    receive_part();
  }
  if (added_ == parts()) close_slots();
  return moved;
}

void AllReduce::share(const Span& piece) {
  for (const Owner& owner : owners_)
    must(MPI_Isend(piece.data, piece.count, MPI_FLOAT, owner.rank, tag_ + 1, channel_.comm,
                   &shares_.emplace_back(MPI_REQUEST_NULL)));
}

/// Takes the sums that have arrived. The receive of a piece's sum starts only when the send of its
/// part has finished, because both use the same memory.
bool AllReduce::exchange(Owner& owner) {
  const std::size_t before = owner.given + owner.taken;
  for (; owner.given < owner.pieces.size() && finished(owner.requests[owner.given]);
       ++owner.given) {
    const Span& piece = owner.pieces[owner.given];
    must(MPI_Irecv(piece.data, piece.count, MPI_FLOAT, owner.rank, tag_ + 1, channel_.comm,
                   &owner.requests[owner.given]));
  }
  while (owner.taken < owner.given && finished(owner.requests[owner.taken])) ++owner.taken;
  return owner.given + owner.taken > before;
}

bool AllReduce::done() const {
  return added_ == parts() && shared_ == shares_.size() &&
         std::all_of(owners_.begin(), owners_.end(),
                     [](const Owner& owner) { return owner.taken == owner.pieces.size(); });
}

}  // namespace lockstep::comm
