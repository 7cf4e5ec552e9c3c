#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/tile_group.hpp"
#include "lockstep/nn/lines.hpp"

namespace lockstep::cpu {

/// Lines of one kind that tiles need of each other, in each image of a batch.
struct SharedLines {
  std::vector<nn::LineRange> needed;  ///< of an image, by tile: its own, and those of others
  std::size_t height = 0, line_bytes = 0;
  /// Writes some of the tile's own lines of an image.
  std::function<void(std::size_t image, const nn::LineRange& lines, std::byte* to)> give;
  /// Keeps some of another's.
  std::function<void(std::size_t image, const nn::LineRange& lines, const std::byte* from)> take;
};

/// What the tiles of a group exchange at one point of a tape: one message to each of the others
/// that needs something. The main thread calls it.
class LineMessage {
 public:
  void add(SharedLines lines) { shared_.push_back(std::move(lines)); }
  struct Place {
    nn::TilePlace tile;
    backend::TileGroup* group;  ///< null: there are no others, and bytes() is all that is asked for
  };
  /// Once all have been added. `name` is what errors call it.
  void plan(const Place& place, std::size_t batch, std::string name);
  bool empty() const { return messages_.empty(); }
  std::size_t bytes() const { return bytes_; }  ///< of memory

  void send();
  /// True once all has come, and was taken, and all has left. Does not wait.
  bool arrived();

 private:
  /// Of one of `shared_`, in each image.
  struct Piece {
    std::size_t shared;
    nn::LineRange gives, takes;
  };
  struct Peer {
    std::size_t tile = 0;
    std::vector<Piece> pieces;
    std::vector<std::byte> gives, takes;
  };

  backend::TileGroup* group_ = nullptr;
  std::size_t batch_ = 0, bytes_ = 0;
  std::string name_;
  std::vector<SharedLines> shared_;
  std::vector<Peer> peers_;
  std::vector<backend::TileMessage> messages_;  ///< what of `peers_` travels
  std::unique_ptr<device::Event> end_;          ///< null: nothing is under way
};

}  // namespace lockstep::cpu
