#include "lockstep/config/step_range.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep::config {

StepRange parse_step_range(const std::string& text, const std::string& key) {
  if (text.empty()) return {};
  const std::size_t colon = text.find(':');
  const auto first = whole_number<std::uint64_t>(text.substr(0, colon));
  const auto last = whole_number<std::uint64_t>(colon == text.npos ? "" : text.substr(colon + 1));
  require(
      first && last && *first > 0,
      fmt::format("{}: '{}' is not FIRST:LAST, two steps of the run, such as 200:210", key, text));
  require(*first <= *last,
          fmt::format("{}: '{}' ends before it begins: FIRST:LAST, as in 200:210", key, text));
  require(*last - *first < most_traced_steps,
          fmt::format("{}: '{}' has {} steps; a trace is kept in memory, {} steps at most", key,
                      text, *last - *first + 1, most_traced_steps));
  return {*first, *last};
}

void require_traceable(const StepRange& range, int ranks, const std::string& key) {
  if (range.empty()) return;
  const std::uint64_t most = std::max<std::uint64_t>(
      1, most_traced_of_ranks / static_cast<std::uint64_t>(std::max(ranks, 1)));
  require(range.last - range.first < most,
          fmt::format("{} = {}: rank 0 keeps the traces of all {} ranks in memory, of {} steps at "
                      "most; trace fewer",
                      key, to_string(range), ranks, most));
}

std::string to_string(const StepRange& range) {
  return range.empty() ? "" : fmt::format("{}:{}", range.first, range.last);
}

}  // namespace lockstep::config
