#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/backend/pace.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/words.hpp"
#include "study/what_if/recorded_steps.hpp"

namespace lockstep::study {
namespace {

using TraceJson = nlohmann::json;

struct TracedSpan {
  double began_ms = 0, ended_ms = 0;
};

/// One rank in one step.
struct TracedRank {
  observe::StepTimes times;
  std::size_t backwards = 0;  ///< one of each micro-batch
  TracedSpan backward;        ///< the last
  std::map<std::size_t, TracedSpan> buckets;
};

/// By step, then rank.
struct TracedSteps {
  std::map<std::uint64_t, std::map<std::size_t, TracedRank>> steps;
  std::map<std::size_t, std::size_t> bucket_bytes;
  bool sums_alone = true;  ///< no collective but an all-reduce of each bucket
};

/// "bucket 3": 3. Empty for "bucket 3, sums", which is one of several of a bucket.
std::optional<std::size_t> bucket_of(const std::string& name) {
  constexpr std::string_view begin = "bucket ";
  const std::string digits = name.starts_with(begin) ? name.substr(begin.size()) : "";
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return {};
  return std::stoul(digits);
}

void take_phase(const std::string& name, const TracedSpan& span, TracedRank& rank) {
  const double ms = span.ended_ms - span.began_ms;
  observe::StepTimes& times = rank.times;
  if (name == "backward") {
    rank.backward = span;
    ++rank.backwards;
    times.backward_ms += ms;
  } else if (name == "loading") {
    times.data_ms += ms;
  } else if (name == "forward") {
    times.forward_ms += ms;
  } else if (name == "update") {
    times.update_ms += ms;
  } else if (name.starts_with("wait for bucket") || name.ends_with("wait for ranks")) {
    times.exposed_comm_ms += ms;
  } else {
    times.other_ms += ms;
  }
}

void take_event(const TraceJson& event, TracedSteps& traced) {
  const std::string kind = event.value("cat", "");
  if (kind != "phase" && kind != "reduction") return;
  const auto& arguments = event.at("args");
  const std::string name = event.at("name").get<std::string>();
  const double began_ms = 1e-3 * event.at("ts").get<double>();
  const TracedSpan span{began_ms, began_ms + 1e-3 * event.at("dur").get<double>()};
  TracedRank& rank =
      traced.steps[arguments.at("step").get<std::uint64_t>()][event.at("pid").get<std::size_t>()];
  if (kind == "phase") return take_phase(name, span, rank);
  const auto bucket = bucket_of(name);
  if (!bucket || !arguments.value("verb", "").starts_with("AllReduce")) {
    traced.sums_alone = false;
    return;
  }
  rank.buckets[*bucket] = span;
  traced.bucket_bytes[*bucket] = arguments.value("bytes", std::size_t{0});
}

/// Throws what the library throws where the text is something else.
TracedSteps traced_steps(const TraceJson& trace) {
  TracedSteps traced;
  for (const TraceJson& event : trace.at("traceEvents")) take_event(event, traced);
  return traced;
}

/// When all ranks have filled the bucket, and when the first one has its sum.
TracedSpan common_span(const std::map<std::size_t, TracedRank>& ranks, std::size_t bucket) {
  TracedSpan common;
  bool first = true;
  for (const auto& [rank, one] : ranks) {
    const TracedSpan& span = one.buckets.at(bucket);
    common.began_ms = first ? span.began_ms : std::max(common.began_ms, span.began_ms);
    common.ended_ms = first ? span.ended_ms : std::min(common.ended_ms, span.ended_ms);
    first = false;
  }
  return common;
}

RecordedBucket bucket_in(const TracedSteps& traced, std::size_t bucket) {
  std::vector<double> full_at;
  for (const auto& [step, ranks] : traced.steps) {
    for (const auto& [rank, one] : ranks) {
      const double length_ms = one.backward.ended_ms - one.backward.began_ms;
      const double at_ms = one.buckets.at(bucket).began_ms - one.backward.began_ms;
      full_at.push_back(length_ms > 0 ? std::clamp(at_ms / length_ms, 0.0, 1.0) : 1);
    }
  }
  return {.floats = traced.bucket_bytes.at(bucket) / sizeof(float),
          .full_at = lower_median(std::move(full_at))};
}

/// Of each bucket of a step: without the time in which it waits for ranks, or for the one before.
std::vector<double> moves_in(const std::map<std::size_t, TracedRank>& ranks, std::size_t buckets) {
  std::vector<double> moves_ms;
  double free_ms = 0;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const TracedSpan span = common_span(ranks, bucket);
    const double began_ms = bucket == 0 ? span.began_ms : std::max(span.began_ms, free_ms);
    moves_ms.push_back(std::max(0.0, span.ended_ms - began_ms));
    free_ms = span.ended_ms;
  }
  return moves_ms;
}

/// Steps that all ranks have, with all buckets.
void keep_whole_steps(const observe::StartRecord& start, TracedSteps& traced) {
  const std::size_t buckets = traced.bucket_bytes.size();
  std::erase_if(traced.steps, [&](const auto& step) {
    const auto& ranks = step.second;
    return ranks.size() != start.ranks || std::ranges::any_of(ranks, [&](const auto& one) {
             return one.second.buckets.size() != buckets || one.second.backwards == 0;
           });
  });
}

void take_traced(const TracedSteps& traced, RecordedSteps& found) {
  found.micro_batches = traced.steps.begin()->second.begin()->second.backwards;
  for (const auto& [bucket, bytes] : traced.bucket_bytes)
    found.buckets.push_back(bucket_in(traced, bucket));
  // Buckets begin in their order.
  for (std::size_t b = 1; b < found.buckets.size(); ++b)
    found.buckets[b].full_at = std::max(found.buckets[b].full_at, found.buckets[b - 1].full_at);
  for (const auto& [step, ranks] : traced.steps) {
    std::vector<observe::StepTimes>& times = found.steps.emplace_back();
    for (const auto& [rank, one] : ranks) times.push_back(one.times);
    found.moves_ms.push_back(moves_in(ranks, found.buckets.size()));
  }
}

}  // namespace

std::string read_trace(const std::filesystem::path& file, const observe::StartRecord& start,
                       RecordedSteps& found) {
  const bool waits = std::ranges::any_of(start.devices, backend::is_rehearsal);
  if (start.gpus > 0 || waits) return "the device runs later than the host, whose times these are";
  const TraceJson trace = TraceJson::parse(read_text(file), nullptr, false);
  TracedSteps traced;
  try {
    if (trace.at("otherData").at("unix_ms").get<std::uint64_t>() < start.time_ms)
      return "it is of an earlier start";
    traced = traced_steps(trace);
  } catch (const TraceJson::exception&) {
    throw InputError(file.string() + ": is not a timeline that a lockstep run wrote");
  }
  keep_whole_steps(start, traced);
  if (start.ranks < 2 || traced.steps.empty() || traced.bucket_bytes.empty())
    return "it has no step with the reductions of all ranks";
  if (!traced.sums_alone) return "its buckets are summed by several collectives each";
  take_traced(traced, found);
  found.basis = fmt::format("{} of {}", counted(found.steps.size(), "step"), file.string());
  return "";
}

}  // namespace lockstep::study
