#pragma once

#include <string>

#include "app/cli/command_line.hpp"
#include "app/commands.hpp"
#include "lockstep/study/search/worker.hpp"

namespace lockstep::app {

/// How a worker of a search trains, and until when.
struct WorkingOptions {
  std::size_t slots = 1, stale_s = 60;
  std::string launcher = "auto", trainer, until;

  void add_to(Arguments app);
};

/// Trains what the list has left, and says what came of it. Throws InputError where this process is
/// one of several ranks, or an option makes no sense.
study::WorkerOutcome work_as_asked(study::SearchFolder& folder, study::TrainingList& list,
                                   const WorkingOptions& options);

/// Done where nothing is left, or the node hours are used; stopped where the same command
/// continues.
Status status_of(const study::WorkerOutcome& outcome);

/// Seconds from `now` (since 1970) to the next time that local clocks show HH:MM. Throws
/// InputError.
double seconds_until(const std::string& time, std::int64_t now);

}  // namespace lockstep::app
