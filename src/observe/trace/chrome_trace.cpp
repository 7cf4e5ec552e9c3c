#include "lockstep/observe/trace/chrome_trace.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/core.h>
#include <fmt/format.h>

#include "lockstep/base/text/json_fields.hpp"

namespace lockstep::observe {

ChromeTrace::ChromeTrace(std::string_view head)
    : text_(fmt::format("{{{}{}\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [", head,
                        head.empty() ? "" : ",\n")) {}

void ChromeTrace::begin() { text_ += std::exchange(first_, false) ? "\n" : ",\n"; }

void ChromeTrace::name(int process, int thread, std::string_view name) {
  begin();
  const std::string where = thread < 0 ? "" : fmt::format(R"(, "tid": {})", thread);
  fmt::format_to(std::back_inserter(text_),
                 R"({{"ph": "M", "name": "{}_name", "pid": {}{}, "args": {{"name": {}}}}})",
                 thread < 0 ? "process" : "thread", process, where, json_string(name));
}

void ChromeTrace::span(int process, int thread, std::string_view category, std::string_view name,
                       double began_us, double ended_us, std::string_view arguments) {
  begin();
  fmt::format_to(
      std::back_inserter(text_),
      R"({{"ph": "X", "cat": "{}", "name": {}, "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, )"
      R"("args": {{{}}}}})",
      category, json_string(name), process, thread, began_us, std::max(0.0, ended_us - began_us),
      arguments);
}

std::string ChromeTrace::take() {
  text_ += "\n]}\n";
  return std::move(text_);
}

}  // namespace lockstep::observe
