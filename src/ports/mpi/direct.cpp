#include "ports/mpi/direct.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/comm/chunks.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t fewest_slots = 4, most_slots = 16;

}  // namespace

Direct::Direct(Channel& channel, Elements data, DirectWork work, int tag, std::string phase)
    : channel_(channel),
      data_(data),
      work_(work),
      tag_(tag),
      phase_(std::move(phase)),
      deadline_(channel.roll_call, channel.deadline_s, phase_, channel.members),
      mine_(pieces_of(channel.rank)) {
  if (work_.scatter) combine_ = combine_of(data_.type, *work_.scatter);
  for (int i = 1; i < channel_.world; ++i) {
    Owner& owner = owners_.emplace_back();
    owner.rank = (channel_.rank + i) % channel_.world;
    owner.pieces = pieces_of(owner.rank);
    begin(owner);
  }
  if (!work_.scatter)
    for (const Elements& piece : mine_) share(piece);
}

// Messages are in flight here only when the world is about to end. MPI may still write into their
// blocks, so these are not reused.
Direct::~Direct() {
  for (Slot& slot : slots_) {
    if (slot.request != MPI_REQUEST_NULL) static_cast<void>(slot.block.release());
    abandon(slot.request, true);
  }
  for (Owner& owner : owners_)
    for (std::size_t i = 0; i < owner.requests.size(); ++i)
      abandon(owner.requests[i], i < owner.given);
  for (MPI_Request& request : shares_) abandon(request, false);
}

bool Direct::advance() {
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
    channel_.network->activity.moved();
  } else {
    deadline_.poll();
  }
  return false;
}

/// An all-reduce may cut as it likes; the others promise equal chunks.
std::vector<Elements> Direct::pieces_of(int rank) const {
  const bool both = work_.scatter && work_.gather;
  return comm::pieces_of(both ? owned_chunk(data_, rank, channel_.world)
                              : equal_chunk(data_, rank, channel_.world));
}

void Direct::begin(Owner& owner) {
  for (const Elements& piece : owner.pieces) {
    MPI_Request& request = owner.requests.emplace_back(MPI_REQUEST_NULL);
    if (work_.scatter)
      must(MPI_Isend(piece.data, static_cast<int>(piece.bytes()), MPI_BYTE,
                     channel_.in_mpi(owner.rank), tag_, channel_.comm, &request));
  }
  if (!work_.scatter) exchange(owner);
}

/// Not earlier, when the reduction was put into the stream: queued reductions need no blocks, and
/// the few blocks in use stay in the cache.
void Direct::open_slots() {
  slots_.resize(std::min(parts(), std::clamp(owners_.size(), fewest_slots, most_slots)));
  for (Slot& slot : slots_) slot.block = channel_.network->staging().take();
  if (combine_.widen) total_ = channel_.network->staging().take();
  for (std::size_t i = 0; i < slots_.size(); ++i) receive_part();
}

void Direct::close_slots() {
  for (Slot& slot : slots_) channel_.network->staging().give_back(std::move(slot.block));
  if (total_) channel_.network->staging().give_back(std::move(total_));
  slots_.clear();
}

void Direct::receive_part() {
  if (expected_ == parts()) return;
  const Elements& piece = mine_[expected_ / owners_.size()];
  Slot& slot = slots_[expected_ % slots_.size()];
  must(MPI_Irecv(slot.block->bytes.data(), static_cast<int>(piece.bytes()), MPI_BYTE,
                 channel_.in_mpi(owners_[expected_ % owners_.size()].rank), tag_, channel_.comm,
                 &slot.request));
  ++expected_;
}

/// Adds the parts that have arrived, in their fixed order, and sends the sums that this completes.
bool Direct::add_parts() {
  bool moved = false;
  for (; added_ < expected_; moved = true) {
    Slot& slot = slots_[added_ % slots_.size()];
    if (!finished(slot.request)) break;
    const Elements& piece = mine_[added_ / owners_.size()];
    add_part(piece, *slot.block);
    ++added_;
    if (work_.gather && added_ % owners_.size() == 0) share(piece);
    receive_part();
  }
  if (added_ == parts()) close_slots();
  return moved;
}

void Direct::add_part(const Elements& piece, const Block& part) {
  if (!total_) {
    combine_.combine(piece.data, part.bytes.data(), piece.count);
    return;
  }
  const std::size_t owner = added_ % owners_.size();
  if (owner == 0) combine_.widen(total_->floats(), piece.data, piece.count);
  combine_.combine(total_->floats(), part.bytes.data(), piece.count);
  if (owner + 1 == owners_.size()) combine_.round(piece.data, total_->floats(), piece.count);
}

void Direct::share(const Elements& piece) {
  for (const Owner& owner : owners_)
    must(MPI_Isend(piece.data, static_cast<int>(piece.bytes()), MPI_BYTE,
                   channel_.in_mpi(owner.rank), tag_ + 1, channel_.comm,
                   &shares_.emplace_back(MPI_REQUEST_NULL)));
}

/// Takes the sums that have arrived. The receive of a piece's sum starts only when the send of its
/// part has finished, because both use the same memory.
bool Direct::exchange(Owner& owner) {
  const std::size_t before = owner.given + owner.taken;
  for (; owner.given < owner.pieces.size() && finished(owner.requests[owner.given]);
       ++owner.given) {
    const Elements& piece = owner.pieces[owner.given];
    if (work_.gather)
      must(MPI_Irecv(piece.data, static_cast<int>(piece.bytes()), MPI_BYTE,
                     channel_.in_mpi(owner.rank), tag_ + 1, channel_.comm,
                     &owner.requests[owner.given]));
  }
  while (owner.taken < owner.given && finished(owner.requests[owner.taken])) ++owner.taken;
  return owner.given + owner.taken > before;
}

bool Direct::done() const {
  return added_ == parts() && shared_ == shares_.size() &&
         std::all_of(owners_.begin(), owners_.end(),
                     [](const Owner& owner) { return owner.taken == owner.pieces.size(); });
}

}  // namespace lockstep::comm
