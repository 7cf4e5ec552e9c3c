#include "tests/support/harness/mpi_world.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/support/harness/harness.hpp"

namespace lockstep::test {
namespace {

// Waits are long here: the watchdog in main.cpp ends them, because it knows the test case's name.
constexpr double patience_s = 3600;

std::unique_ptr<comm::World> the_world;
std::vector<std::unique_ptr<comm::ControlPlane>> planes;
comm::Control* verdicts;  // only for the harness, so that the tests' calls do not mix with it

// A rank that does not report writes into a separate file while a case runs. Rank 0 shows the file
// when the case failed there, so that it appears above the verdict.
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

// This function and the next one only make calls that are allowed in a signal handler.
void restore_output() noexcept {
  if (shown_out < 0) return;
  dup2(shown_out, STDOUT_FILENO);
  dup2(shown_err, STDERR_FILENO);
  close(shown_out);
  close(shown_err);
  shown_out = shown_err = -1;
  lseek(hidden, 0, SEEK_SET);
}

ssize_t read_hidden(std::span<char> part) noexcept {
  return hidden < 0 ? 0 : read(hidden, part.data(), part.size());
}

}  // namespace

comm::World& world() { return *the_world; }

comm::ControlPlane& make_plane(double deadline_s, const comm::ActivityTracker& activity) {
  return *planes.emplace_back(std::make_unique<comm::ControlPlane>(
      the_world->make_fabric(patience_s), deadline_s, activity));
}

comm::Control* make_control(double deadline_s, const comm::ActivityTracker& activity) {
  return &make_plane(deadline_s, activity).control();
}

std::unique_ptr<comm::Communicator> make_communicator(double deadline_s,
                                                      const comm::ActivityTracker& activity) {
  return make_plane(deadline_s, activity).connect(deadline_s);
}

bool on_every_rank(bool mine) { return !verdicts->any(!mine, "a test's verdict"); }

int run_process(int argc, char** argv, int (*session)(int, char**)) {
  try {
    the_world = std::make_unique<comm::World>(argc, argv);
    verdicts = make_control(patience_s);
    const int status = session(argc, argv);
    planes.clear();
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
  restore_output();
  std::string mine = passed ? "passed" : "failed\n";
  std::array<char, 4096> part;
  for (ssize_t got; !passed && (got = read_hidden(part)) > 0;)
    mine.append(part.data(), static_cast<std::size_t>(got));

  bool all_passed = true;
  for (const std::string& said : verdicts->gather(mine, "a test case's verdict")) {
    if (said == "passed") continue;
    all_passed = false;
    if (speaks()) std::fputs(said.c_str() + std::strlen("failed\n"), stdout);
  }
  return all_passed;
}

void dying() noexcept {
  if (speaks()) return;
  restore_output();
  std::array<char, 4096> part;
  for (ssize_t got; (got = read_hidden(part)) > 0;)
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, part.data(), static_cast<std::size_t>(got));
}

bool speaks() { return the_world->facts().rank == 0; }

}  // namespace lockstep::test
