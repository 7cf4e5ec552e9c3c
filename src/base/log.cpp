#include "lockstep/base/log.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <limits>
#include <mutex>
#include <string>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::log {
namespace {

std::atomic<int> g_rank{0};
std::atomic<int> g_world{1};
std::atomic<bool> g_redraw{true}, g_colours{false};
std::atomic<int> g_silences{0};

// The state of the terminal's last line, so that other lines do not follow a progress line on it.
struct ProgressLine {
  std::mutex mutex;
  bool drawn = false;
  double last_s = -std::numeric_limits<double>::infinity();
};

ProgressLine& progress_line() {
  static ProgressLine line;
  return line;
}

std::atomic<int> g_lost{0};  // errno of the first write to stdout that failed

// One write for each call; if a pipe takes only a part, the rest follows. A log that cannot be
// written (closed pipe, full disk) must not end the training, so errors are only noted.
void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      int none = 0;
      if (file == STDOUT_FILENO && errno != EPIPE) g_lost.compare_exchange_strong(none, errno);
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void say(int file, std::string_view kind, std::string_view line, bool lines = false) {
  if (g_silences > 0) return;
  ProgressLine& bar = progress_line();
  const std::lock_guard lock(bar.mutex);
  if (bar.drawn) write_all(STDOUT_FILENO, "\r\x1b[K");
  bar.drawn = false;
  const int world = g_world;
  const std::string who = !kind.empty() && world > 1 ? fmt::format("rank {}: ", rank()) : "";
  write_all(file, fmt::format("{}{}{}\n", who, kind, lines ? printable(line) : one_line(line)));
}

// Open MPI gives each rank a pseudo-terminal as stdout, even when mpirun's own output goes to a
// file. stderr stays a pipe then and tells the two cases apart.
bool can_redraw() {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  return terminal && g_redraw;
}

}  // namespace

Silence::Silence() { ++g_silences; }
Silence::~Silence() { --g_silences; }

void set_terminal(bool redraw, bool with_colours) {
  g_redraw = redraw;
  g_colours = with_colours;
}

int columns() {
  constexpr int usual = 80;
  if (!can_redraw()) return 0;
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : usual;
}

bool colours() { return g_colours && can_redraw(); }

void set_rank(int rank, int world) {
  g_rank = rank;
  g_world = world;
}

int rank() { return g_rank; }

void info(std::string_view line) {
  if (rank() == 0) say(STDOUT_FILENO, "", line);
}

void text(std::string_view lines) {
  if (rank() == 0) say(STDOUT_FILENO, "", lines, true);
}

int lost_output() { return g_lost; }

void warn(std::string_view line) { say(STDERR_FILENO, "warning: ", line); }

void error(std::string_view line) { say(STDERR_FILENO, "error: ", line); }

void progress(std::string_view line, double every_s) {
  if (rank() != 0) return;
  ProgressLine& bar = progress_line();
  const std::lock_guard lock(bar.mutex);
  if (can_redraw()) {
    // Without automatic wrapping a line longer than the terminal is cut and can still be redrawn.
    write_all(STDOUT_FILENO, fmt::format("\r\x1b[?7l{}\x1b[K\x1b[?7h", line));
    bar.drawn = true;
    return;
  }
  if (const double now = now_s(); now - bar.last_s >= every_s) {
    bar.last_s = now;
    write_all(STDOUT_FILENO, fmt::format("{}\n", line));
  }
}

void end_progress() {
  ProgressLine& bar = progress_line();
  const std::lock_guard lock(bar.mutex);
  if (bar.drawn) write_all(STDOUT_FILENO, "\n");
  bar.drawn = false;
  bar.last_s = -std::numeric_limits<double>::infinity();
}

}  // namespace lockstep::log
