// LARS and LAMB on the CPU, against the published formulas.
#include <catch2/catch.hpp>

#include "tests/support/laws/rules.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("50 steps of each rule are the published formula's, zero norms and skip lists included",
          "[rules]") {
  for (const std::size_t threads : {1u, 3u}) {
    const auto backend = backend::make_cpu_backend({std::vector<std::vector<int>>(threads)});
    check_rules(*backend, bottlenecks());
  }
}
