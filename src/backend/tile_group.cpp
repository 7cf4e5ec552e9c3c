#include "lockstep/backend/tile_group.hpp"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/device/idle.hpp"

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

void TileGroup::wait(const std::function<bool()>& arrived) {
  if (arrived()) return;
  const comm::Waiting waiting(lines_->activity);
  const double began_ms = now_ms();
  for (device::Idle idle; !arrived();) idle();
  waited_ms_ += now_ms() - began_ms;
}

double TileGroup::take_waited_ms() {
  const double all_ms = waited_ms_ + span_.waited_ms();
  return all_ms - std::exchange(taken_ms_, all_ms);
}

std::unique_ptr<TileGroup> make_tile_group(std::size_t tiles, const Backend& backend,
                                           comm::Communicator& ranks) {
  if (tiles == 1) return nullptr;
  require(backend.shares_images(),
          fmt::format("tiles = {}: the {} backend does not share the lines of an image between "
                      "ranks, the cpu backend does; leave it out",
                      tiles, backend.name()));
  check(static_cast<std::size_t>(ranks.world()) % tiles == 0, "tiles must divide the ranks");
  const int group = ranks.rank() / static_cast<int>(tiles);
  return std::make_unique<TileGroup>(ranks.split(group, ranks.rank(), "tiles"));
}

}  // namespace lockstep::backend
