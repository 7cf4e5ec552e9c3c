#include <algorithm>

#include <fmt/core.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/train/ending/notify.hpp"
#include "train/loop/run_loop.hpp"

// How a run ends: stopped, finished, diverged or failed.
namespace lockstep::train {

Outcome RunLoop::stop() {
  log::end_progress();
  record_ranks();
  const std::filesystem::path checkpoint = files_.checkpoints().path_of(progress_.step);
  save({});
  finish_saves();
  close_ledger(progress_.epoch + 1);
  const bool time_is_up = stop_policy_.time_is_up(now_s());
  const bool planned = stop_policy_.ends_after(progress_.step);
  log::info(fmt::format("stopped after step {} {}; --resume auto continues from {}", progress_.step,
                        time_is_up ? "because the allocation ends soon"
                        : planned  ? "as stop-after asked"
                                   : "on a signal",
                        checkpoint.string()));
  if (is_root()) log::info(observe::ledger_line(ledger_.records(), best_epoch()));
  record_end("stopped", time_is_up ? Ending::out_of_time : Ending::stopped,
             time_is_up ? "the allocation ends soon"
             : planned  ? "stop-after"
                        : "a signal");
  return Outcome::stopped;
}

void RunLoop::finish() {
  finish_saves();
  control_.activity.enter(comm::Phase::ending);
  close_ledger(progress_.epoch);
  const double seconds = now_s() - spec_.started_s;
  const double peak = control_.max({static_cast<double>(peak_resident_bytes())}, "summary")[0];
  if (!is_root()) return;
  write_summary(record_end("finished", Ending::finished, ""), peak);
  log::info(fmt::format("{}, in {}; {:.0f} images/s; peak memory {} a rank",
                        observe::reached_line(progress_, newest_validation_, newest_average_),
                        human_seconds(seconds), statistics_.images_per_s(), human_bytes(peak)));
  if (statistics_.steps > 0) log::info(observe::times_line(statistics_));
  log::info(observe::ledger_line(ledger_.records(), best_epoch()));
  log::info(
      fmt::format("{}: config.toml decisions.toml metrics.jsonl binding.json summary.json "
                  "checkpoints/",
                  files_.directory().root().string()));
}

/// What came after the last epoch's record, too. Collective.
void RunLoop::close_ledger(std::uint64_t epoch) {
  files_.records().write(ledger_.record(epoch, progress_.step));
}

/// The exception continues to main, and is what counts: that nothing can be written any more, or
/// may be because a newer start has begun, is not said as well.
void RunLoop::record_failure(const std::exception& error) {
  const Ending ending = ending_of(error);
  const bool diverged = ending == Ending::diverged;
  try {
    if (diverged) finish_saves();  // all ranks find it in the same step
    files_.require_newest();
  } catch (const std::exception&) {
    return;
  }
  try {
    files_.records().write(ledger_.record_alone(progress_.epoch + 1, progress_.step));
    const auto end = record_end(diverged ? "diverged" : "failed", ending, error.what());
    if (is_root()) write_summary(end, static_cast<double>(peak_resident_bytes()));
  } catch (const std::exception&) {
    files_.leave_post_mortem({.reason = error.what(), .ending = ending});
  }
}

observe::EndRecord RunLoop::record_end(const std::string& status, Ending ending,
                                       const std::string& reason) {
  const observe::EndRecord end{.status = status,
                               .reason = reason,
                               .steps = progress_.step,
                               .epochs = progress_.epoch,
                               .seconds = now_s() - spec_.started_s,
                               .ending = ending};
  note_end(status, reason);
  files_.records().write(end);
  return end;
}

void RunLoop::write_summary(const observe::EndRecord& end, double peak_bytes) {
  observe::Summary summary{.model = config_.model,
                           .precision = to_string(config_.precision),
                           .batch = config_.batch,
                           .epochs = end.epochs,
                           .steps = end.steps,
                           .validation = newest_validation_,
                           .average = newest_average_,
                           .best = std::nullopt};
  if (progress_.best_top1 >= 0)
    summary.best = {.top1 = progress_.best_top1, .epoch = progress_.best_epoch};
  summary.seconds = end.seconds;
  summary.seconds_to_first_step = statistics_.first_step_s;
  summary.images_per_s = statistics_.images_per_s();
  const double steps = static_cast<double>(std::max<std::uint64_t>(statistics_.steps, 1));
  summary.mean_step = statistics_.times / steps;
  summary.peak_resident_bytes = static_cast<std::uint64_t>(peak_bytes);
  summary.status = end.status;
  summary.ending = end.ending;
  summary.reason = end.reason;
  summary.samples = data_.rows_until(progress_.epoch, progress_.batch);
  summary.start = files_.start_record();
  summary.ended_ms = observe::unix_ms();
  summary.ledger = observe::sum_of(ledger_.records());
  if (summary.best)
    summary.ledger_to_best = observe::sum_until(ledger_.records(), summary.best->epoch);
  files_.write_summary(summary);
}

}  // namespace lockstep::train
