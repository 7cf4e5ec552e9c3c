#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {
namespace {

bool is_clock(const C& c) { return c.backend == BackendChoice::clock; }
bool has_profile(const C& c) { return !c.clock.profile.empty(); }

}  // namespace

std::vector<ConfigKey> clock_keys() {
  using Section = C::Clock;
  return {
      key("clock.row-ms", &C::clock, &Section::row_ms,
          "backend = clock: a step of b rows takes row-ms * b + step-ms")
          .within(0, 1e6)
          .needs("backend", is_clock)
          .bookkeeping(),
      key("clock.step-ms", &C::clock, &Section::step_ms, "the part of it that rows do not change")
          .within(0, 1e9)
          .needs("backend", is_clock)
          .bookkeeping(),
      key("clock.profile", &C::clock, &Section::profile,
          "instead: a tape that 'bench train --layers --json FILE' measured, or a GPU's profile "
          "(jobs/gpus)")
          .needs("backend", is_clock)
          .bookkeeping()
          .names_input(),
      key("clock.efficiency", &C::clock, &Section::efficiency,
          "share of its stated rates that the profile's GPU reaches")
          .within(0.001, 1)
          .needs("clock.profile", has_profile)
          .bookkeeping(),
  };
}

}  // namespace lockstep::config
