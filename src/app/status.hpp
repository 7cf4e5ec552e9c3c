#pragma once

namespace lockstep::app {

/// The program's exit status.
enum Status : int {
  status_done = 0,
  status_failed = 1,     ///< something broke: an error inside, a rank lost, ranks diverged
  status_bad_input = 2,  ///< for the user to correct: a file, a key, the launch, the command line
  status_stopped = 3,    ///< stopped by a signal or stop-after, with a checkpoint written
  status_lost_rank = 4   ///< ended because another rank is missing or does not answer
};

}  // namespace lockstep::app
