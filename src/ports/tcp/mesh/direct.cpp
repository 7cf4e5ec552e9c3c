#include "ports/tcp/mesh/direct.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/comm/chunks.hpp"

namespace lockstep::comm {
namespace {

// A piece travels from its first owner's hands and to all: two messages of one number.
std::size_t part_of(std::size_t piece) { return 2 * piece; }
std::size_t whole_of(std::size_t piece) { return 2 * piece + 1; }
constexpr std::size_t all_here = UINT32_MAX;  // a message without data, to the one that gave all

}  // namespace

MeshReduction::MeshReduction(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
                             Elements data, Reduction reduction, bool shares)
    : MeshOperation(group, tag, std::move(phase), others_of(*group)),
      data_(data),
      combine_(combine_of(data.type, reduction)),
      shares_(shares) {}

void MeshReduction::begin() {
  const auto chunk_of = [&](int member) {
    return pieces_of(shares_ ? owned_chunk(data_, member, world())
                             : equal_chunk(data_, member, world()));
  };
  mine_ = chunk_of(rank());
  for (Other& other : others_) {
    const std::vector<Elements> theirs = chunk_of(other.member);
    for (std::size_t i = 0; i < theirs.size(); ++i) send(other, part_of(i), theirs[i]);
    // A sum comes only after this rank's part of it has been read, so it may overwrite that.
    for (std::size_t i = 0; shares_ && i < theirs.size(); ++i)
      expect(other, whole_of(i), theirs[i]);
    other.missing += mine_.size();
  }
}

void MeshReduction::work() {
  const std::size_t others = others_.size();
  for (; combined_ < mine_.size() * others; ++combined_) {
    const std::size_t i = combined_ / others, nth = combined_ % others;
    Other& from = others_[nth];
    std::optional<Arrival> part = take(from, part_of(i), mine_[i]);
    if (!part) return;
    --from.missing;
    combine(mine_[i], part->data(), nth == 0, nth + 1 == others);
    part->give_back(staging());
    if (!shares_ || nth + 1 < others) continue;
    for (Other& other : others_) send(other, whole_of(i), mine_[i]);
  }
}

void MeshReduction::combine(const Elements& piece, const std::byte* part, bool first, bool last) {
  if (!combine_.widen) return combine_.combine(piece.data, part, piece.count);
  if (first) {
    total_ = staging().take();
    combine_.widen(total_->floats(), piece.data, piece.count);
  }
  combine_.combine(total_->floats(), part, piece.count);
  if (!last) return;
  combine_.round(piece.data, total_->floats(), piece.count);
  staging().give_back(std::move(total_));
}

MeshGathering::MeshGathering(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
                             Elements data)
    : MeshOperation(group, tag, std::move(phase), others_of(*group)), data_(data) {}

void MeshGathering::begin() {
  const std::vector<Elements> mine = pieces_of(equal_chunk(data_, rank(), world()));
  for (Other& other : others_) {
    const std::vector<Elements> theirs = pieces_of(equal_chunk(data_, other.member, world()));
    for (std::size_t i = 0; i < theirs.size(); ++i) expect(other, whole_of(i), theirs[i]);
    for (std::size_t i = 0; i < mine.size(); ++i) send(other, whole_of(i), mine[i]);
  }
}

MeshBroadcast::MeshBroadcast(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
                             Elements data, int root)
    : MeshOperation(group, tag, std::move(phase), others_of(*group)), data_(data), root_(root) {}

/// The root has the first chunk, which is all of it when there is little.
std::vector<Elements> MeshBroadcast::chunk_of(int member) const {
  return pieces_of(owned_chunk(data_, (member - root_ + world()) % world(), world()));
}

void MeshBroadcast::begin() {
  mine_ = chunk_of(rank());
  for (Other& other : others_) {
    const std::vector<Elements> theirs = chunk_of(other.member);
    for (std::size_t i = 0; rank() == root_ && i < theirs.size(); ++i)
      send(other, part_of(i), theirs[i]);
    for (std::size_t i = 0; rank() == root_ && i < mine_.size(); ++i)
      send(other, whole_of(i), mine_[i]);
    if (rank() == root_) expect(other, all_here, {});
    for (std::size_t i = 0; other.member == root_ && i < mine_.size(); ++i)
      expect(other, part_of(i), mine_[i]);
    for (std::size_t i = 0; rank() != root_ && i < theirs.size(); ++i)
      expect(other, whole_of(i), theirs[i]);
    if (other.member == root_) after_mine_ = theirs.size();
  }
}

/// What comes from the root keeps its order: first this rank's chunk, then the root's.
void MeshBroadcast::work() {
  if (rank() == root_) return;
  Other& root = *std::find_if(others_.begin(), others_.end(),
                              [this](const Other& other) { return other.member == root_; });
  for (; root.missing + passed_on_ < mine_.size() + after_mine_ && passed_on_ < mine_.size();
       ++passed_on_)
    for (Other& other : others_)
      if (&other != &root) send(other, whole_of(passed_on_), mine_[passed_on_]);
  const bool here = std::all_of(others_.begin(), others_.end(),
                                [](const Other& other) { return other.missing == 0; });
  if (here && !std::exchange(done_, true)) send(root, all_here, {});
}

MeshTransfer::MeshTransfer(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
                           Elements data, int peer, bool sends)
    : MeshOperation(std::move(group), tag, std::move(phase), {peer}), data_(data), sends_(sends) {}

void MeshTransfer::begin() {
  const std::vector<Elements> pieces = pieces_of(data_);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    sends_ ? send(others_[0], part_of(i), pieces[i]) : expect(others_[0], part_of(i), pieces[i]);
  if (sends_) expect(others_[0], all_here, {});
}

void MeshTransfer::work() {
  if (!sends_ && others_[0].missing == 0 && !std::exchange(done_, true))
    send(others_[0], all_here, {});
}

}  // namespace lockstep::comm
