#pragma once

#include <cstdint>
#include <string>

namespace lockstep::config {

/// Steps of a run, from 1, both ends included; none by default.
struct StepRange {
  std::uint64_t first = 0, last = 0;
  bool empty() const { return last == 0; }
  bool holds(std::uint64_t step) const { return first <= step && step <= last; }
  bool operator==(const StepRange&) const = default;
};

/// Reads "200:210"; "" means no steps. Throws InputError naming `key` for any other text, for steps
/// in the wrong order, and for more than most_traced_steps.
StepRange parse_step_range(const std::string& text, const std::string& key);
std::string to_string(const StepRange& range);

/// A trace is kept in memory until its range ends; rank 0 then has those of all ranks, some 18 kB
/// for each step and rank.
constexpr std::uint64_t most_traced_steps = 1000, most_traced_of_ranks = 20'000;

/// Throws InputError naming `key` where the steps of that many ranks are more than these.
void require_traceable(const StepRange& range, int ranks, const std::string& key);

}  // namespace lockstep::config
