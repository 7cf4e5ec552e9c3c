#pragma once

#include <string>

namespace lockstep::test {

/// What each kind of test process (a single one, or a rank among others) does around Catch2's
/// session. unit_process.cpp and mpi_world.cpp each implement it; main.cpp is compiled once for
/// both.

/// Starts the process's world, runs `session` and ends the world; returns main's status.
int run_process(int argc, char** argv, int (*session)(int, char**));
/// Call it when a test case begins: until end_case() only the reporting process's output is shown.
void begin_case(const std::string& name);
/// Call it when a test case has ended. Returns the verdict of all processes: true when it passed on
/// each.
bool end_case(bool passed);
/// Call it when the process dies of a signal: shows its output, without waiting for other
/// processes.
void dying() noexcept;
/// Whether this process reports verdicts: a single process, or rank 0.
bool speaks();

}  // namespace lockstep::test
