#pragma once

#include <string>

namespace lockstep::test {

/// What one kind of test process (alone, or a rank among others) does around Catch2's session.
/// unit_process.cpp and mpi_world.cpp each implement it; main.cpp is compiled once for both.

/// Runs `session` between the process's start and end; returns main's status.
int run_process(int argc, char** argv, int (*session)(int, char**));
/// A test case begins: from here to end_case() only the speaking process's output is shown.
void begin_case(const std::string& name);
/// A test case ended. Returns the verdict on it by all processes: true when it passed on each.
bool end_case(bool passed);
/// The process is dying of a signal: shows what it said, without waiting for anybody.
void dying() noexcept;
/// Whether this process reports verdicts: alone, or rank 0.
bool speaks();

}  // namespace lockstep::test
