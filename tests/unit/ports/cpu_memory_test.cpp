#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <new>

#include "lockstep/backend/backend.hpp"
#include "lockstep/nn/resnet.hpp"

using namespace lockstep;
using namespace lockstep::backend;

namespace {

/// Address space of this process, bytes.
std::size_t mapped_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  statm >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

enum Ending { compiled = 0, no_memory = 1, other_error = 2 };

/// How a child that may map only `more` bytes compiles a network that no other test has: oneDNN
/// keeps the code that it has made.
Ending compile_within(Backend& backend, std::size_t more) {
  const rlimit limit{.rlim_cur = mapped_bytes() + more, .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
  try {
    const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 24, 5));
    const auto parameters = backend.make_parameters(network, Precision::fp32);
    ProgramSpec spec;
    spec.batch = 5;
    spec.training = true;
    spec.mean = spec.stddev = {0.5f, 0.5f, 0.5f};
    const auto program = backend.compile(network, spec, *parameters);
    return compiled;
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (...) {
    return other_error;
  }
}

}  // namespace

TEST_CASE("where memory runs out, no program is made and none crashes", "[cpu][slow]") {
  if (mapped_bytes() > std::size_t{1} << 40) {
    std::cout << "SKIPPED: a sanitizer has mapped more than a limit of memory can say\n";
    return;
  }
  const auto backend = make_cpu_backend({});
  std::size_t refused = 0;
  for (std::size_t megabytes = 1; megabytes < 100; megabytes += 3) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(compile_within(*backend, megabytes << 20));
    int status = 0;
    ::waitpid(child, &status, 0);
    INFO(megabytes << " MB: status " << status);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) != other_error);
    refused += WEXITSTATUS(status) == no_memory ? 1 : 0;
  }
  CHECK(refused > 5);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(compile_within(*backend, std::size_t{4} << 30));
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == compiled));
}
