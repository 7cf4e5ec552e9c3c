#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::observe {

/// The text of a trace in the format of chrome://tracing and Perfetto while it is written, one
/// event a line. Arguments are JSON, without braces: `"bucket": 3`; times are microseconds.
class ChromeTrace {
 public:
  /// `head`: further members, as JSON without braces, before the events.
  explicit ChromeTrace(std::string_view head = "");
  /// A thread of a process, or with thread < 0 the process itself, is called so.
  void name(int process, int thread, std::string_view name);
  void span(int process, int thread, std::string_view category, std::string_view name,
            double began_us, double ended_us, std::string_view arguments);
  std::string take();  ///< once, at the end

 private:
  void begin();
  std::string text_;
  bool first_ = true;
};

}  // namespace lockstep::observe
