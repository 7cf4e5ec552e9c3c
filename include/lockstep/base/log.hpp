#pragma once

#include <string_view>

namespace lockstep {

/// Every line that the program prints goes through here, so that rank and order are always right.
/// `info` prints only on rank 0 (before ranks are known: on every process); warn and error print on
/// every rank and name it. info goes to stdout, the others to stderr. Each call is one write, so
/// that the lines of different ranks do not mix. A name in a line may have any bytes: its control
/// characters are shown (one_line()), so that no name looks like another line. **Thread safety:**
/// any thread may call these.
namespace log {

void set_rank(int rank, int world);  ///< until this call the process counts as rank 0 of 1
int rank();
void info(std::string_view line);
/// The same for several lines: a table, JSON, a page. Names in it are made one_line() before.
void text(std::string_view lines);
/// While one lives, nothing is printed: what a command would say is not what was asked for.
class Silence {
 public:
  Silence();
  ~Silence();
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;
};
/// The errno of the first line that stdout did not take; 0: it took all, or its reader has left.
int lost_output();
void warn(std::string_view line);
void error(std::string_view line);
/// What the terminal may be sent: lines that are drawn again, and colours. Until this call: lines
/// that are drawn again, without colours.
void set_terminal(bool redraw, bool with_colours);
/// The width of the terminal on which progress() redraws its line; 0: it does not redraw.
int columns();
/// Whether lines for that terminal may have colours.
bool colours();
/// Redraws one line in place when stdout is a terminal; elsewhere prints at most one line each
/// `every_s` seconds.
void progress(std::string_view line, double every_s = 5);
void end_progress();

}  // namespace log
}  // namespace lockstep
