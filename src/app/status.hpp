#pragma once

namespace lockstep::app {

/// What the program says by its exit status.
enum Status : int {
  status_done = 0,
  status_failed = 1,     ///< something broke: an error inside, a rank lost, ranks diverged
  status_bad_input = 2,  ///< the user can mend it: a file, a key, the launch, the command line
  status_stopped = 3,    ///< stopped by SIGTERM, SIGUSR1 or stop-after, with a checkpoint written
  status_lost_rank = 4   ///< ended because another rank is missing or keeps all waiting
};

}  // namespace lockstep::app
