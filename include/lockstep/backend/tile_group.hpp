#pragma once

// Images that are cut into tiles (--tiles): each rank of a group has some lines of every map of the
// same images, computes those, and gets from the others the lines that its windows reach beyond
// them. Batch norm's moments are those of the whole maps, gathered as by a NormSpan.

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "lockstep/backend/norm_span.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/nn/lines.hpp"

namespace lockstep::backend {

/// Bytes to and from another tile.
struct TileMessage {
  std::size_t tile = 0;
  std::span<std::byte> gives, takes;
};

/// The ranks that have the other lines of this rank's images.
/// **Invariants:** all tiles make the same calls in the same order, because a tape's steps make
/// them. Lines travel apart from the collectives of the step, in a separate order.
/// **Thread safety:** none; the main thread uses it.
class TileGroup {
 public:
  /// `group`: the tiles of one replica. Throws InputError where the transport has no channels.
  explicit TileGroup(std::unique_ptr<comm::Communicator> group);
  nn::TilePlace place() const { return {span_.rank(), span_.ranks()}; }
  NormSpan& span() { return span_; }
  /// Starts to exchange lines with some of the others. The memory must stay untouched until the
  /// event is done, which takes calls of progress().
  std::unique_ptr<device::Event> exchange(std::span<const TileMessage> messages,
                                          std::string_view name);
  void progress() { lines_->progress(); }

 private:
  NormSpan span_;
  std::unique_ptr<comm::Communicator> lines_;
};

/// Tiles of this many consecutive ranks of `ranks`, which must divide among them; null for 1.
/// Throws InputError where `backend` cannot share images. `ranks` must outlive it. Collective.
std::unique_ptr<TileGroup> make_tile_group(std::size_t tiles, const Backend& backend,
                                           comm::Communicator& ranks);

}  // namespace lockstep::backend
