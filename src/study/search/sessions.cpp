#include <fmt/format.h>

#include <chrono>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/observe/tensorboard/session.hpp"
#include "lockstep/study/search/best.hpp"
#include "lockstep/study/search/show.hpp"
#include "study/search/columns.hpp"

namespace lockstep::study {
namespace {

observe::TrialSession session_of(const SearchFolder& folder, std::size_t trial) {
  using Clock = std::chrono::system_clock;
  observe::TrialSession session{
      .config = folder.trials().at(trial),
      .time_s = std::chrono::duration<double>(Clock::now().time_since_epoch()).count()};
  for (const Dimension& dimension : folder.space().dimensions)
    if (counts_in(dimension, session.config)) session.keys.push_back(dimension.key);
  for (auto at = folder.results().lower_bound({trial, 0});
       at != folder.results().end() && at->first.trial == trial; ++at) {
    if (at->second.end != LegEnd::done) continue;
    session.score_name = at->second.score_name;
    session.scores[at->second.epoch] = at->second.score;
  }
  // A trial that was stopped early did what it had to.
  session.succeeded = newest_leg(folder, trial).end == LegEnd::done;
  return session;
}

}  // namespace

std::size_t write_sessions(const SearchFolder& folder, const std::filesystem::path& out) {
  std::size_t written = 0;
  for (const std::size_t trial : placed(folder)) {
    if (!folder.trials().contains(trial)) continue;
    const std::filesystem::path place = out / fmt::format("trial-{}", trial);
    make_directories(place);
    write_text_atomically(place / "events.out.tfevents.0000000000.lockstep.0.0",
                          session_file(session_of(folder, trial)));
    ++written;
  }
  require(written > 0, folder.path().string() + ": no trial has a result yet");
  return written;
}

}  // namespace lockstep::study
