#include "lockstep/backend/tile_group.hpp"

#include <fmt/format.h>

#include "lockstep/base/error.hpp"

namespace lockstep::backend {

TileGroup::TileGroup(std::unique_ptr<comm::Communicator> group)
    : span_(std::move(group)), lines_(span_.channel("tiles, lines")) {}

std::unique_ptr<device::Event> TileGroup::exchange(std::span<const TileMessage> messages,
                                                   std::string_view name) {
  lines_->together([&] {
    for (const TileMessage& message : messages) {
      const auto other = static_cast<int>(message.tile);
      lines_->send(comm::raw_elements(message.gives), other, name, lines_->network());
      lines_->receive(comm::raw_elements(message.takes), other, name, lines_->network());
    }
  });
  return lines_->network().record_newest();
}

std::unique_ptr<TileGroup> make_tile_group(std::size_t tiles, const Backend& backend,
                                           comm::Communicator& ranks) {
  if (tiles == 1) return nullptr;
  require(backend.shares_images(),
          fmt::format("tiles = {}: the {} backend does not share the lines of an image between "
                      "ranks, the cpu backend does; leave it out",
                      tiles, backend.name()));
  return std::make_unique<TileGroup>(consecutive(tiles, ranks, "tiles"));
}

}  // namespace lockstep::backend
