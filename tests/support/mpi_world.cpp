#include "tests/support/mpi_world.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include <unistd.h>

#include "tests/support/harness.hpp"

namespace lockstep::test {
namespace {

// The watchdog in main.cpp is what ends a wait: it knows the name of the test case.
constexpr double kPatience_s = 3600;

std::unique_ptr<comm::World> the_world;
std::unique_ptr<comm::Control> verdicts;  // of the harness alone: no test's calls mix with its own

// A rank that does not speak writes into a file of its own while a case runs; the file is shown
// when the case fails there.
int hidden = -1;
int shown_out = -1, shown_err = -1;

void hide_output() {
  if (hidden < 0) {
    std::FILE* file = std::tmpfile();
    if (!file) return;
    hidden = dup(fileno(file));
    std::fclose(file);
  }
  std::fflush(nullptr);
  [[maybe_unused]] const int emptied = ftruncate(hidden, 0);
  lseek(hidden, 0, SEEK_SET);
  shown_out = dup(STDOUT_FILENO);
  shown_err = dup(STDERR_FILENO);
  dup2(hidden, STDOUT_FILENO);
  dup2(hidden, STDERR_FILENO);
}

// Only calls that a signal handler may make.
void restore_output(bool show) noexcept {
  if (shown_out < 0) return;
  dup2(shown_out, STDOUT_FILENO);
  dup2(shown_err, STDERR_FILENO);
  close(shown_out);
  close(shown_err);
  shown_out = shown_err = -1;
  if (!show) return;
  lseek(hidden, 0, SEEK_SET);
  char part[4096];
  for (ssize_t got; (got = read(hidden, part, sizeof part)) > 0;)
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, part, static_cast<size_t>(got));
}

}  // namespace

comm::World& world() { return *the_world; }

bool on_every_rank(bool mine) { return !verdicts->any(!mine, "a test's verdict"); }

int run_process(int argc, char** argv, int (*session)(int, char**)) {
  try {
    the_world = std::make_unique<comm::World>(argc, argv);
    verdicts = the_world->make_control(kPatience_s);
    const int status = session(argc, argv);
    verdicts.reset();
    the_world.reset();
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the MPI tests ended early: %s\n", error.what());
    comm::World::abort(EXIT_FAILURE);
  }
}

void begin_case(const std::string& name) {
  if (speaks()) return;
  hide_output();
  std::printf("on rank %d, in \"%s\":\n", the_world->facts().rank, name.c_str());
  std::fflush(stdout);
}

bool end_case(bool passed) {
  std::fflush(nullptr);
  restore_output(!passed);
  return on_every_rank(passed);
}

void dying() noexcept { restore_output(true); }

bool speaks() { return the_world->facts().rank == 0; }

}  // namespace lockstep::test
