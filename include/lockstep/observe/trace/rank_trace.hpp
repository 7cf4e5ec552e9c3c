#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/observe/trace/clock_offset.hpp"

namespace lockstep::observe {

/// Something that took time in a step. Times are microseconds on the rank's clock.
struct TraceSpan {
  std::string name;        ///< "forward", "bucket 3"
  std::string verb;        ///< of a collective, as NCCL calls it; else empty
  std::uint64_t step = 0;  ///< of the run, from 1
  std::uint64_t bytes = 0;
  bool computes = false;  ///< the device works for the step
  double began_us = 0, ended_us = 0;

  static void fields(auto& self, auto&& visit) {
    visit(self.name, self.verb, self.step, self.bytes, self.computes, self.began_us, self.ended_us);
  }
};

/// What one rank did in the steps that are traced, each list by time.
struct RankTrace {
  int rank = 0;
  std::string host;
  ClockReading first_clock, last_clock;  ///< before and after these steps
  std::vector<TraceSpan> steps;
  std::vector<TraceSpan> phases;       ///< of the main thread, one after the other
  std::vector<TraceSpan> collectives;  ///< in the order of the stream; some overlap in time

  ClockAlignment clock() const { return {first_clock, last_clock}; }
  static void fields(auto& self, auto&& visit) {
    visit(self.rank, self.host, self.first_clock, self.last_clock, self.steps, self.phases,
          self.collectives);
  }
};

/// What ranks' traces say together. Of no ranks or no steps, all is 0.
struct TraceFindings {
  std::uint64_t first_step = 0, last_step = 0;
  double uncertainty_us = 0;  ///< of the rank whose clock is known worst
  int uncertain_rank = 0;
  /// The median over steps: between the ranks' ends of a step's last sum or gathering, which it has
  /// on all ranks at about the same time. Empty without such steps.
  double ends_within_us = 0;
  std::uint64_t compared_steps = 0;
};
TraceFindings find_in(const std::vector<RankTrace>& ranks);

/// All ranks by rank 0's clock, for Perfetto and chrome://tracing: a process for each rank, with
/// its main thread and its reductions. `otherData` has the readings of the clocks, and how
/// uncertain they are. `unix_ms`: the time of the first rank's first reading.
std::string merged_trace(const std::vector<RankTrace>& ranks, std::uint64_t unix_ms);

/// One rank in the form of PyTorch's profiler, for Holistic Trace Analysis: steps are annotations
/// `ProfilerStep#N`; each collective is a launch and a kernel `ncclKernel_VERB` on a separate
/// stream, and so is what the device computes on the compute stream, although a CPU has neither.
/// Times are those of merged_trace().
std::string kineto_trace(const std::vector<RankTrace>& ranks, std::size_t which,
                         std::uint64_t unix_ms);

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
