#include "lockstep/observe/trace/rank_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/json_fields.hpp"

namespace lockstep::observe {
namespace {

enum Thread { main_thread = 1, first_network = 2 };           // of a rank, in the merged trace
enum Stream { launches = 1, compute_stream = 7, sums = 20 };  // of a rank, in Kineto's form

/// Holistic Trace Analysis keeps small numbers in columns of 8 bits, and then puts larger ones
/// there, which pandas 3 does not take.
constexpr int first_correlation = 100'000;

bool ends_together(const TraceSpan& collective) {
  return collective.verb.starts_with("AllReduce") || collective.verb.starts_with("AllGather");
}

/// By step, when the last collective that all ranks end together ended, on rank 0's clock.
std::map<std::uint64_t, double> last_ends(const RankTrace& rank) {
  std::map<std::uint64_t, double> ends;
  for (const TraceSpan& one : rank.collectives)
    if (ends_together(one)) ends[one.step] = rank.clock().on_root(one.ended_us);
  return ends;
}

void compare_ends(const std::vector<RankTrace>& ranks, TraceFindings& found) {
  struct Ends {
    double first = 0, last = 0;
    std::size_t ranks = 0;
  };
  std::map<std::uint64_t, Ends> steps;
  for (const RankTrace& rank : ranks)
    for (const auto& [step, us] : last_ends(rank)) {
      Ends& ends = steps[step];
      ends.first = ends.ranks == 0 ? us : std::min(ends.first, us);
      ends.last = ends.ranks == 0 ? us : std::max(ends.last, us);
      ++ends.ranks;
    }
  std::vector<double> apart;
  for (const auto& [step, ends] : steps)
    if (ends.ranks > 1 && ends.ranks == ranks.size()) apart.push_back(ends.last - ends.first);
  found.compared_steps = apart.size();
  found.ends_within_us = upper_median(std::move(apart));
}

/// Microseconds of rank 0's clock at which traces begin.
double zero_us(const std::vector<RankTrace>& ranks) { return ranks.front().first_clock.at_us; }

std::string describe_clock(const RankTrace& rank) {
  return fmt::format(
      R"({{"rank": {}, "host": {}, "ahead_us": [{:.3f}, {:.3f}], "uncertainty_us": {:.3f}}})",
      rank.rank, json_string(rank.host), rank.first_clock.ahead_us, rank.last_clock.ahead_us,
      rank.clock().uncertainty_us());
}

std::string merged_head(const std::vector<RankTrace>& ranks, std::uint64_t unix_ms) {
  const TraceFindings found = find_in(ranks);
  std::string clocks;
  for (const RankTrace& rank : ranks)
    clocks += (clocks.empty() ? "\n  " : ",\n  ") + describe_clock(rank);
  return fmt::format(
      "\"otherData\": {{\"first_step\": {}, \"last_step\": {}, \"unix_ms\": {}, "
      "\"uncertainty_us\": {:.3f},\n \"reductions_end_within_us\": {:.3f}, "
      "\"compared_steps\": {},\n \"clocks\": [{}]}}",
      found.first_step, found.last_step, unix_ms, found.uncertainty_us, found.ends_within_us,
      found.compared_steps, clocks);
}

std::string arguments_of(const TraceSpan& span) {
  std::string text = fmt::format(R"("step": {})", span.step);
  if (span.bytes > 0) text += fmt::format(R"(, "bytes": {})", span.bytes);
  if (!span.verb.empty()) text += fmt::format(R"(, "verb": {})", json_string(span.verb));
  return text;
}

/// For each span, the first row in which all earlier ones have ended: viewers want spans of a
/// thread one after the other.
std::vector<int> rows_of(const std::vector<TraceSpan>& spans) {
  std::vector<int> rows;
  std::vector<double> ends_us;  // of each row
  for (const TraceSpan& span : spans) {
    const auto free = std::find_if(ends_us.begin(), ends_us.end(),
                                   [&](double end_us) { return end_us <= span.began_us; });
    const auto row = free - ends_us.begin();
    if (free == ends_us.end())
      ends_us.push_back(span.ended_us);
    else
      *free = span.ended_us;
    rows.push_back(static_cast<int>(row));
  }
  return rows;
}

void add_rank(ChromeTrace& trace, const RankTrace& rank, double zero) {
  const ClockAlignment clock = rank.clock();
  const auto at = [&](double us) { return clock.on_root(us) - zero; };
  trace.name(rank.rank, -1,
             fmt::format("rank {} on {}, clock +- {:.0f} us", rank.rank, rank.host,
                         clock.uncertainty_us()));
  trace.name(rank.rank, main_thread, "main thread");
  for (const TraceSpan& step : rank.steps)
    trace.span(rank.rank, main_thread, "step", step.name, at(step.began_us), at(step.ended_us),
               arguments_of(step));
  for (const TraceSpan& phase : rank.phases)
    trace.span(rank.rank, main_thread, "phase", phase.name, at(phase.began_us), at(phase.ended_us),
               arguments_of(phase));
  const std::vector<int> rows = rows_of(rank.collectives);
  const int most = rows.empty() ? -1 : *std::max_element(rows.begin(), rows.end());
  for (int row = 0; row <= most; ++row)
    trace.name(rank.rank, first_network + row, fmt::format("reductions {}", row + 1));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TraceSpan& one = rank.collectives[i];
    trace.span(rank.rank, first_network + rows[i], "reduction", one.name, at(one.began_us),
               at(one.ended_us), arguments_of(one));
  }
}

}  // namespace

TraceFindings find_in(const std::vector<RankTrace>& ranks) {
  TraceFindings found;
  for (const RankTrace& rank : ranks) {
    const double uncertainty_us = rank.clock().uncertainty_us();
    if (uncertainty_us > found.uncertainty_us) {
      found.uncertainty_us = uncertainty_us;
      found.uncertain_rank = rank.rank;
    }
    if (rank.steps.empty()) continue;
    found.first_step = rank.steps.front().step;
    found.last_step = rank.steps.back().step;
  }
  compare_ends(ranks, found);
  return found;
}

std::string merged_trace(const std::vector<RankTrace>& ranks, std::uint64_t unix_ms) {
  ChromeTrace trace(merged_head(ranks, unix_ms));
  for (const RankTrace& rank : ranks) add_rank(trace, rank, zero_us(ranks));
  return trace.take();
}

std::string kineto_trace(const std::vector<RankTrace>& ranks, std::size_t which,
                         std::uint64_t unix_ms) {
  const RankTrace& rank = ranks.at(which);
  const ClockAlignment clock = rank.clock();
  const auto at = [&](double us) { return clock.on_root(us) - zero_us(ranks); };
  ChromeTrace trace(fmt::format(
      "\"schemaVersion\": 1,\n"  // its reader looks for a blank before the rank
      "\"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}}},\n"
      "\"baseTimeNanoseconds\": {},\n\"clockUncertaintyMicroseconds\": {:.3f}",
      rank.rank, ranks.size(), unix_ms * 1'000'000, clock.uncertainty_us()));
  trace.name(rank.rank, -1, fmt::format("rank {} on {}", rank.rank, rank.host));
  for (const TraceSpan& step : rank.steps)
    trace.span(rank.rank, launches, "user_annotation", fmt::format("ProfilerStep#{}", step.step),
               at(step.began_us), at(step.ended_us), "");
  int correlation = first_correlation;
  const auto kernel = [&](const TraceSpan& one, const std::string& name, int stream) {
    ++correlation;
    trace.span(rank.rank, launches, "cuda_runtime", "cudaLaunchKernel", at(one.began_us),
               at(one.began_us), fmt::format(R"("correlation": {})", correlation));
    trace.span(
        rank.rank, stream, "kernel", name, at(one.began_us), at(one.ended_us),
        fmt::format(R"("correlation": {}, "device": {}, "stream": {}, "of": {}, {})", correlation,
                    rank.rank, stream, json_string(one.name), arguments_of(one)));
  };
  for (const TraceSpan& phase : rank.phases) {
    trace.span(rank.rank, launches, "cpu_op", phase.name, at(phase.began_us), at(phase.ended_us),
               arguments_of(phase));
    if (phase.computes) kernel(phase, phase.name, compute_stream);
  }
  for (const TraceSpan& one : rank.collectives) kernel(one, "ncclKernel_" + one.verb, sums);
  return trace.take();
}

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
