#include "lockstep/config/step_range.hpp"

#include <fmt/core.h>

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

std::string to_string(const StepRange& range) {
  return range.empty() ? "" : fmt::format("{}:{}", range.first, range.last);
}

}  // namespace lockstep::config
