#pragma once

#include <string>

namespace lockstep::test {

// The watchdog of the test processes. Its verdict is about the case, not about the machine's pace:
// it counts the seconds that the process and its children were on a core. A case that was there
// for longer than its limit is an endless loop; one that was hardly there for half of the limit,
// and did not want a core either, hangs. It ends the process with status 124, and under mpirun so
// all ranks.

/// A case, or one more run through it, begins. The limit is LOCKSTEP_TEST_SECONDS, else 120 s.
/// **Thread safety:** only the thread that runs the cases calls these two.
void watch(const std::string& test_case);
/// Between cases nothing is watched.
void stop_watching();

}  // namespace lockstep::test
