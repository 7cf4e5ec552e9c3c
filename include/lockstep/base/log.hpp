#pragma once

#include <string_view>

namespace lockstep {

/// Every line that the program says goes through here, so that rank and order are always right.
/// `info` speaks only on the rank that was chosen as speaker (rank 0 once ranks are known); warn
/// and error speak on every rank and say which. info goes to stdout, the others to stderr; each
/// call is one write, so that ranks' lines do not mix.
namespace log {

void set_rank(int rank, int world);  ///< before this call the process speaks for itself
int rank();
void info(std::string_view line);
void warn(std::string_view line);
void error(std::string_view line);
/// Redraws one line in place when stdout is a terminal; elsewhere prints at most one line each
/// `every_s` seconds.
void progress(std::string_view line, double every_s = 5);
void end_progress();

}  // namespace log
}  // namespace lockstep
