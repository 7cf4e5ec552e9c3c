#include "ports/cpu/line_message.hpp"

#include <utility>

namespace lockstep::cpu {

void LineMessage::plan(const Place& place, std::size_t batch, std::string name) {
  group_ = place.group;
  batch_ = batch;
  name_ = std::move(name);
  const nn::TilePlace mine = place.tile;
  for (std::size_t tile = 0; tile < mine.count; ++tile) {
    if (tile == mine.index) continue;
    Peer peer{.tile = tile, .pieces = {}, .gives = {}, .takes = {}};
    std::size_t gives = 0, takes = 0;
    for (std::size_t s = 0; s < shared_.size(); ++s) {
      const SharedLines& lines = shared_[s];
      const nn::TilePlace its{tile, mine.count};
      const Piece piece{s, nn::common(lines.needed[tile], mine.of(lines.height)),
                        nn::common(lines.needed[mine.index], its.of(lines.height))};
      if (piece.gives.count + piece.takes.count == 0) continue;
      peer.pieces.push_back(piece);
      gives += piece.gives.count * lines.line_bytes * batch;
      takes += piece.takes.count * lines.line_bytes * batch;
    }
    bytes_ += gives + takes;
    if (!group_) continue;
    peer.gives.resize(gives);
    peer.takes.resize(takes);
    if (!peer.pieces.empty()) peers_.push_back(std::move(peer));
  }
  for (Peer& peer : peers_) messages_.push_back({peer.tile, peer.gives, peer.takes});
}

void LineMessage::send() {
  for (Peer& peer : peers_) {
    std::byte* to = peer.gives.data();
    for (const Piece& piece : peer.pieces) {
      const SharedLines& lines = shared_[piece.shared];
      if (piece.gives.count == 0) continue;
      for (std::size_t image = 0; image < batch_; ++image) {
        lines.give(image, piece.gives, to);
        to += piece.gives.count * lines.line_bytes;
      }
    }
  }
  end_ = group_->exchange(messages_, name_);
}

bool LineMessage::arrived() {
  if (!end_) return true;
  group_->progress();
  if (!end_->done()) return false;
  end_ = nullptr;
  for (const Peer& peer : peers_) {
    const std::byte* from = peer.takes.data();
    for (const Piece& piece : peer.pieces) {
      const SharedLines& lines = shared_[piece.shared];
      if (piece.takes.count == 0) continue;
      for (std::size_t image = 0; image < batch_; ++image) {
        lines.take(image, piece.takes, from);
        from += piece.takes.count * lines.line_bytes;
      }
    }
  }
  return true;
}

}  // namespace lockstep::cpu
