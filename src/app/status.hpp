#pragma once

namespace lockstep::app {

/// The program's exit status: the one rule, which jobs/README.md repeats with what to do, and which
/// the scripts in jobs/ follow. The same command again helps after 3 and 4 only.
enum Status : int {
  status_done = 0,
  /// Error: training diverged, a run of a study failed, a disk is full, no memory, a fault inside.
  status_failed = 1,
  /// InputError: for the user to correct: a file, a key, the launch, too few measurements.
  status_bad_input = 2,
  status_stopped = 3,   ///< stopped by a signal, stop-after or the time limit, with a checkpoint
  status_lost_rank = 4  ///< another rank is missing, or the network or file system does not answer
};
constexpr const char* status_help =
    "Exit status: 0 done; 1 the run failed (it diverged, a disk is full, no memory); 2 bad input "
    "or\n"
    "usage; 3 stopped by Ctrl-C, SIGHUP, SIGTERM, SIGUSR1, the time limit or --stop-after, with a\n"
    "checkpoint for --resume auto; 4 another rank was lost, or the network or a file system does\n"
    "not answer.\n";

}  // namespace lockstep::app
