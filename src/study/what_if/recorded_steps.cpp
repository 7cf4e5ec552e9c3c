#include "study/what_if/recorded_steps.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/backend/pace.hpp"
#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/config/config.hpp"
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
  const nn::Network network = train::trained_part(config, train::make_network(config, info));
  const std::size_t rows =
      std::max<std::uint64_t>(1, start.batch / start.ranks / config.accumulate);
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
  found.micro_batches = config.accumulate;
  found.buckets = buckets_of(config, records.start);
  take_epochs(records, found);
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

}  // namespace lockstep::study
