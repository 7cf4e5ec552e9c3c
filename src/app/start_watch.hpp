#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "lockstep/sys/launch.hpp"

namespace lockstep::app {

/// Ends this process when the ranks' first meeting, inside MPI_Init, takes longer than the
/// deadline. There is no heartbeat yet: who is missing nobody knows but those who wait, so each
/// says that it does. A thread, because nothing else gets a process out of MPI_Init; it is gone
/// before the process binds itself.
class StartWatch {
 public:
  StartWatch(const sys::RankInfo& self, double deadline_s);
  ~StartWatch();  ///< they have met

 private:
  void run(const sys::RankInfo& self, double deadline_s);
  std::mutex mutex_;
  std::condition_variable changed_;
  bool met_ = false;
  std::thread thread_;
};

}  // namespace lockstep::app
