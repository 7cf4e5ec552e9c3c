#pragma once

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/choices.hpp"

namespace lockstep {

/// In records, post-mortems and the JSON of `lockstep why`.
template <>
struct Choices<Ending> {
  using enum Ending;
  static constexpr Choice<Ending> all[] = {{finished, "finished"},
                                           {running, "running"},
                                           {stopped, "stopped"},
                                           {out_of_time, "out of time"},
                                           {preempted, "preempted"},
                                           {out_of_memory, "out of memory"},
                                           {lost_rank, "lost rank"},
                                           {stuck, "stuck"},
                                           {network, "network"},
                                           {file_system, "file system"},
                                           {disk_full, "disk full"},
                                           {diverged, "diverged"},
                                           {disagreement, "disagreement"},
                                           {bad_data, "bad data"},
                                           {superseded, "superseded"},
                                           {bad_checkpoint, "bad checkpoint"},
                                           {killed, "killed"},
                                           {never_began, "never began"},
                                           {unknown, "unknown"}};
};

}  // namespace lockstep
