#include "start_watch.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cstdlib>

#include "lockstep/base/log.hpp"
#include "status.hpp"

namespace lockstep::app {

StartWatch::StartWatch(const sys::RankInfo& self, double deadline_s) {
  if (self.world > 1) thread_ = std::thread([=, this] { run(self, deadline_s); });
}

StartWatch::~StartWatch() {
  {
    const std::scoped_lock lock(mutex_);
    met_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StartWatch::run(const sys::RankInfo& self, double deadline_s) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, std::chrono::duration<double>(deadline_s), [this] { return met_; }))
    return;
  log::error(
      fmt::format("rank {} of {}, on {}, has waited in MPI's start for {:.0f} s: ranks that do "
                  "not say this never came (start-up); ending",
                  self.rank, self.world, self.host, deadline_s));
  std::_Exit(status_lost_rank);
}

}  // namespace lockstep::app
