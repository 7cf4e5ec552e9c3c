#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <unistd.h>

#include "lockstep/base/error.hpp"
#include "tests/support/mpi_world.hpp"

namespace lockstep::test {

/// What `call` throws; empty when it does not.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Rank `absent` hangs, as a stopped process does, while the others `call`; once they have ended it
/// goes on. What a rank's call threw is returned; on `absent` nothing. Collective.
template <class Call>
std::string while_absent(int absent, const Call& call) {
  const auto control = world().make_control(30);
  const auto pids = control->gather(std::to_string(getpid()), "process ids");
  if (control->rank() == absent) {
    raise(SIGSTOP);
    return {};
  }
  const std::string said = error_of(call);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // no rank may hear it before all are done
  kill(static_cast<pid_t>(std::stol(pids[static_cast<std::size_t>(absent)])), SIGCONT);
  return said;
}

}  // namespace lockstep::test
