#include "pack/share_index.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <fmt/core.h>

#include "lockstep/base/log.hpp"
#include "lockstep/comm/agreement.hpp"

namespace lockstep::pack {

using comm::together;

void share_index(comm::Control& control, const SourceSpec& source,
                 const std::filesystem::path& folder) {
  std::size_t pieces = 0;
  together(control, "pack: index", [&] { pieces = index_count(source); });
  if (pieces == 0) return;
  const auto rank = static_cast<std::size_t>(control.rank());
  const auto world = static_cast<std::size_t>(control.world());
  std::atomic<std::size_t> finished = 0;
  std::atomic<bool> given_up = false;
  // A piece may take long, so a thread does it while the ranks stay in touch.
  std::future<void> own = std::async(std::launch::async, [&] {
    for (std::size_t piece = rank; piece < pieces && !given_up; piece += world) {
      index_piece(source, piece, folder);
      ++finished;
    }
  });
  // Stops the thread before its future waits for it, also when another rank has failed.
  const struct Stop {
    std::atomic<bool>& flag;
    ~Stop() { flag = true; }
  } stop{given_up};
  const std::chrono::duration<double> round(round_s);
  for (bool all = false; !all;) {
    if (!own.valid()) std::this_thread::sleep_for(round);
    const bool ready = own.valid() && own.wait_for(round) == std::future_status::ready;
    together(control, "pack: index", [&] {
      if (ready) own.get();
    });
    const std::vector<double> state =
        control.sum({static_cast<double>(finished), own.valid() ? 0.0 : 1.0}, "pack: index");
    all = state[1] == control.world();
    if (!all)
      log::progress(fmt::format("looking for images: {:.0f} of {} {} done", state[0], pieces,
                                source.kind == "tar" ? "tars" : "sources"));
  }
  log::end_progress();
}

}  // namespace lockstep::pack
