#include "train/step_trace.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/observe/metrics.hpp"

namespace lockstep::train {
namespace {

bool computes(const comm::Activity& activity) {
  using enum comm::Phase;
  return !activity.waiting &&
         (activity.phase == forward || activity.phase == backward || activity.phase == update);
}

std::string name_of(const comm::Activity& activity) {
  if (activity.phase == comm::Phase::reduction)
    return fmt::format("wait for bucket {}", activity.bucket);
  if (activity.phase == comm::Phase::data) return "loading";
  return fmt::format("{}{}", comm::to_string(activity.phase),
                     activity.waiting ? ", wait for ranks" : "");
}

/// What of the range a start will not see; empty where it sees all.
std::string beyond(const config::StepRange& range, std::uint64_t done, std::uint64_t planned) {
  const std::string key = fmt::format("trace = {}: ", to_string(range));
  if (range.last <= done)
    return key + fmt::format("this start begins after step {}: nothing is traced", done);
  if (range.first > planned)
    return key + fmt::format("the run ends with step {}: nothing is traced", planned);
  if (range.last > planned)
    return key + fmt::format("the run ends with step {}, and so does the trace", planned);
  if (range.first <= done)
    return key + fmt::format("this start, and so the trace, begins with step {}", done + 1);
  return "";
}

std::string describe_trace(const std::vector<observe::RankTrace>& ranks,
                           const std::filesystem::path& file) {
  const observe::TraceFindings found = observe::find_in(ranks);
  std::string text =
      fmt::format("trace of steps {} to {}: {}", found.first_step, found.last_step, file.string());
  if (found.uncertainty_us > 0)
    text += fmt::format("; clocks are known to +- {:.0f} us (rank {})", found.uncertainty_us,
                        found.uncertain_rank);
  else if (ranks.size() > 1)
    text += "; the ranks have one clock";
  if (found.compared_steps > 0)
    text += fmt::format("; a step's last reduction ends within {:.0f} us on all ranks (median)",
                        found.ends_within_us);
  return text;
}

}  // namespace

StepTrace::StepTrace(const RunSpec& spec, const device::Device& device, comm::Control& control)
    : spec_(spec), device_(device), control_(control) {}

StepTrace::~StepTrace() {
  if (follows_) control_.activity.remove(*this);
}

comm::Communicator& StepTrace::watch(comm::Communicator& reducing) {
  if (spec_.config.trace.empty() || device_.progress_word()) return reducing;
  watched_ = comm::watch_collectives(reducing, *this);
  return *watched_;
}

void StepTrace::begin(const std::filesystem::path& run, std::uint64_t done, std::uint64_t planned) {
  const config::StepRange& range = spec_.config.trace;
  if (range.empty()) return;
  const bool is_root = control_.rank() == 0;
  const std::string note = beyond(range, done, planned);
  if (is_root && !note.empty()) log::warn(note);
  if (range.last <= done || range.first > planned) return;
  if (is_root && device_.progress_word())
    log::info(
        "trace: a GPU runs later than the host, so the trace has what the host does; see kernels "
        "and reductions with nsys, whose domain lockstep has the same names");
  folder_ = run / "trace";
  mine_.rank = control_.rank();
  mine_.host = spec_.nodes.name_of(spec_.nodes.node_of(control_.rank()));
  control_.activity.add(*this);
  follows_ = true;
}

void StepTrace::end() {
  if (!follows_) return;
  control_.activity.remove(*this);
  follows_ = false;
  if (recording_) finish();
  if (control_.rank() != 0) return;
  if (!recorded_)
    log::warn(fmt::format("trace = {}: the run ended after step {}: nothing was traced",
                          to_string(spec_.config.trace), step_));
  look_at_files(true);
}

void StepTrace::changed(const comm::Activity& now) {
  if (comparing_) return;
  if (now.phase == comm::Phase::data && now.step != step_) begin_step(now.step);
  if (!recording_) return;
  std::string name = name_of(now);
  std::vector<observe::TraceSpan>& phases = mine_.phases;
  const bool goes_on = !phases.empty() && phases.back().ended_us == 0;
  if (goes_on && phases.back().name == name && phases.back().step == step_) return;
  const double now_us = clock_us();
  if (goes_on) phases.back().ended_us = now_us;
  phases.push_back({.name = std::move(name),
                    .verb = {},
                    .step = step_,
                    .bytes = now.phase == comm::Phase::reduction ? now.bytes : 0,
                    .computes = computes(now) && !device_.progress_word(),
                    .began_us = now_us});
}

/// Between two steps: the only change in which ranks wait for each other, and which may throw.
void StepTrace::begin_step(std::uint64_t step) {
  step_ = step;
  look_at_files(false);
  if (recording_) close_spans(clock_us());
  if (spec_.config.trace.holds(step)) {
    if (!recording_) start();
    mine_.steps.push_back(
        {.name = fmt::format("step {}", step), .verb = {}, .step = step, .began_us = clock_us()});
  } else if (recording_) {
    finish();
  }
}

void StepTrace::start() {
  unix_ms_ = observe::unix_ms();
  mine_.first_clock = read_clock();
  recording_ = true;
}

void StepTrace::close_spans(double now_us) {
  if (!mine_.steps.empty()) mine_.steps.back().ended_us = now_us;
  if (!mine_.phases.empty()) mine_.phases.back().ended_us = now_us;
}

void StepTrace::ended(comm::WatchedCollective one) {
  if (!recording_) return;
  mine_.collectives.push_back({.name = std::move(one.name),
                               .verb = std::move(one.verb),
                               .step = step_,
                               .bytes = one.bytes,
                               .began_us = one.began_us,
                               .ended_us = one.ended_us});
}

observe::ClockReading StepTrace::read_clock() {
  comparing_ = true;
  const observe::ClockReading reading = observe::read_clock(control_, spec_.trace_clock);
  comparing_ = false;
  const bool with_root = spec_.nodes.machine_of(control_.rank()) == spec_.nodes.machine_of(0);
  return with_root ? observe::on_one_machine(reading) : reading;
}

void StepTrace::finish() {
  recording_ = false;
  recorded_ = true;
  close_spans(clock_us());
  mine_.last_clock = read_clock();
  const auto ranks = comm::gather_records_at_root(control_, mine_, "trace");
  if (control_.rank() == 0) write(ranks);
}

/// A file for each rank, then the merged one.
void StepTrace::write(const std::vector<observe::RankTrace>& ranks) {
  const std::string steps =
      fmt::format("{}-{}", ranks[0].steps.front().step, ranks[0].steps.back().step);
  const std::filesystem::path merged = folder_ / (steps + ".json");
  said_ = describe_trace(ranks, merged);
  writer_.emplace(spec_.bind_worker);
  const auto add = [&](const std::filesystem::path& path, std::string made) {
    const auto text = std::make_shared<const std::string>(std::move(made));
    writer_->add({.name = path.string(),
                  .paths = {path},
                  .bytes = [text] { return std::string_view(*text); },
                  .before = [folder = path.parent_path()] { make_directories(folder); }});
  };
  for (std::size_t i = 0; i < ranks.size(); ++i)
    add(folder_ / steps / fmt::format("rank-{}.json", i),
        observe::kineto_trace(ranks, i, unix_ms_));
  add(merged, observe::merged_trace(ranks, unix_ms_));
}

void StepTrace::look_at_files(bool wait) {
  if (!writer_) return;
  try {
    if (wait) writer_->wait();
    writer_->poll();
    if (writer_->unfinished() > 0) return;
    log::info(said_);
  } catch (const Error& error) {  // also of a full disk
    log::warn(fmt::format("trace: {}; training continues without", error.what()));
  }
  writer_.reset();
}

}  // namespace lockstep::train
