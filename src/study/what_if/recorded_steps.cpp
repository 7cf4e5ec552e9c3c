#include "study/what_if/recorded_steps.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "lockstep/backend/pace.hpp"
#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/study/simulate/timeline.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_epochs = 30;  // the newest

/// Why steps of this configuration are not simulated; empty when they are.
std::string other_exchange(const config::Config& config) {
  if (config.model_options.norm_ranks > 1)
    return "with model-options.norm-ranks ranks also wait for each other inside of forward and "
           "backward, which the simulation does not";
  const char* key = config.sync.gossip          ? "sync.gossip"
                    : config.sync.every > 1     ? "sync.every"
                    : config.comm.power_sgd > 0 ? "comm.power-sgd"
                                                : nullptr;
  if (!key) return "";
  return fmt::format(
      "with {} ranks do not sum whole gradients in each step, as the simulation does", key);
}

/// By the network's operations, which a pace of rows alone is spread by.
std::vector<RecordedBucket> buckets_of(const config::Config& config,
                                       const observe::StartRecord& start) {
  require(start.classes > 0 && start.image > 0 && start.ranks > 0 && config.comm.bucket_mb > 0,
          "its newest start's record lacks the network's input");
  data::DataSetInfo info;
  info.classes.resize(start.classes);
  info.height = info.width = start.image;
  info.channels = 3;
  const nn::Network network = nn::trained_part(infer::make_network(config, info));
  config::require_whole_replicas(config, "these questions are about trainings");
  const auto ranks = static_cast<int>(start.ranks);
  const std::size_t rows =
      std::max<std::uint64_t>(1, start.batch / config::sharers(config, ranks) / config.accumulate);
  const bool line = config.clock.row_ms > 0 || config.clock.step_ms > 0;
  const backend::LinePace pace = line ? backend::LinePace{config.clock.row_ms, config.clock.step_ms}
                                      : backend::LinePace{.row_ms = 1};
  const StepTimeline step = simulate_step(
      time_tape(network, rows, config.precision, pace), backend::plain_layout(network),
      static_cast<std::size_t>(config.comm.bucket_mb * 1e6), [](double) { return ReduceCost{}; });
  std::vector<RecordedBucket> buckets;
  for (const BucketTimes& one : step.buckets)
    buckets.push_back({.floats = static_cast<std::size_t>(one.bytes) / sizeof(float),
                       .full_at = (one.ready_ms - step.forward_ms) / step.backward_ms});
  return buckets;
}

/// The newest timeline; empty without one.
fs::path newest_trace(const fs::path& folder) {
  fs::path newest;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() != ".json" || !entry.is_regular_file(none)) continue;
    if (newest.empty() || entry.last_write_time(none) > fs::last_write_time(newest, none))
      newest = entry.path();
  }
  return newest;
}

/// Whether the trace of the run had the steps; a note where there is one that does not serve.
bool took_trace(const fs::path& run, const observe::StartRecord& start, RecordedSteps& found) {
  const fs::path file = newest_trace(run / "trace");
  if (file.empty()) return false;
  try {
    const std::string why = read_trace(file, start, found);
    if (why.empty()) return true;
    found.notes.push_back(fmt::format("{} is left out: {}", file.string(), why));
  } catch (const InputError& error) {
    found.notes.push_back(fmt::format("a timeline is left out: {}", error.what()));
  }
  return false;
}

void take_epochs(const NewestStart& records, RecordedSteps& found) {
  const std::size_t epochs = std::min(records.ranks.size(), most_epochs);
  found.basis = fmt::format("the means of {}", counted(epochs, "epoch"));
  for (auto one = records.ranks.end() - static_cast<std::ptrdiff_t>(epochs);
       one != records.ranks.end(); ++one)
    found.steps.push_back(times_of(*one));
}

void read_steps(const train::RunDirectory& run, const NewestStart& records, RecordedSteps& found) {
  const config::Config config = read_config(run.root());
  found.batch = records.start.batch;
  found.not_known = other_exchange(config);
  if (!found.not_known.empty()) return;
  if (took_trace(run.root(), records.start, found)) return;
  found.micro_batches = config::micro_batches(config, static_cast<int>(records.start.ranks));
  found.buckets = buckets_of(config, records.start);
  take_epochs(records, found);
}

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

RecordedSteps read_recorded_steps(const fs::path& path, const NewestStart& records) {
  RecordedSteps found;
  try {
    read_steps(train::RunDirectory(path), records, found);
  } catch (const InputError& error) {  // of a file that the table of costs does not need
    found.not_known = error.what();
  }
  return found;
}

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
