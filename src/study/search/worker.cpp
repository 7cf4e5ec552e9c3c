#include "lockstep/study/search/worker.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <thread>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/work_folder.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/observe/summary.hpp"
#include "lockstep/train/ending/stop_signal.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "study/search/slots.hpp"
#include "study/search/verdict.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_attempts = 3;  ///< that failed
constexpr std::size_t most_in_a_row = 6;  ///< failures of one worker: then the worker is at fault
constexpr int status_stopped = 3;         ///< of lockstep train
constexpr double most_beat_s = 5;
constexpr double nap_s = 0.02, long_nap_s = 0.5;
constexpr double retry_s = 5;  ///< while a run is still held by who had it before

class Worker {
 public:
  Worker(SearchFolder& folder, TrainingList& list, const WorkerSpec& spec)
      : folder_(folder),
        list_(list),
        spec_(spec),
        claims_({.claims = list.claims(),
                 .beat_s = std::min(most_beat_s, spec.stale_s / 4),
                 .stale_s = spec.stale_s}),
        slots_(spec.slots) {}

  WorkerOutcome run() {
    for (double nap = nap_s;; std::this_thread::sleep_for(std::chrono::duration<double>(nap))) {
      const bool ended = reap();
      notice_end();
      bool started = false;
      while (!is_ending() && start_next()) started = true;
      const bool works = std::ranges::any_of(slots_, [](const auto& slot) { return !!slot; });
      if (!works && !is_ending() && !started && others_suffice()) {
        outcome_.left_to_others = true;
        return outcome_;
      }
      if (!works && (is_ending() || cannot_go_on_)) return outcome_;
      if (!works && list_.is_complete()) {
        outcome_.complete = true;
        std::error_code none;
        fs::remove_all(list_.claims(), none);
        return outcome_;
      }
      nap = started || ended ? nap_s : std::min(long_nap_s, nap * 1.5);
      if (works) nap = std::min(nap, 5 * nap_s);
    }
  }

 private:
  struct Running {
    Training training;
    std::size_t piece = 0, attempt = 0;
    pid_t child = 0;
    double began_s = 0;
    fs::path log;
    bool told = false;  ///< to stop
  };

  bool is_ending() const { return outcome_.told_to_stop || !outcome_.gave_up.empty() || late_; }

  void notice_end() {
    if (train::stop_requested()) outcome_.told_to_stop = true;
    if (spec_.left_s() <= 0) late_ = outcome_.out_of_time = true;
    if (!outcome_.told_to_stop && !late_) return;
    for (auto& slot : slots_) {
      if (!slot || std::exchange(slot->told, true)) continue;
      // To SIGTERM mpirun answers with SIGKILL a second later; another trainer may know no other.
      ::kill(slot->child, spec_.trainer.empty() ? SIGUSR1 : SIGTERM);
    }
  }

  /// Whether one has ended.
  bool reap() {
    bool any = false;
    for (auto& slot : slots_) {
      if (!slot) continue;
      const auto status = wait_for_child(slot->child, 0);
      if (!status) continue;
      any = true;
      finish(*slot, *status);
      slot.reset();
    }
    return any;
  }

  /// After start_next(): each training that is due has a holder who lives, and when one of them
  /// ends, they are enough for what that makes due. Should one be killed then, it is continued once
  /// somebody starts a worker.
  bool others_suffice() const { return all_held_ && list_.due().size() >= list_.most_to_come(); }

  /// Seconds that an epoch takes, by the legs so far; 0: none has ended.
  double epoch_s() {
    if (!epoch_s_ || folder_.version() != epoch_s_version_) {
      epoch_s_ = median_epoch_s();
      epoch_s_version_ = folder_.version();
    }
    return *epoch_s_;
  }
  double median_epoch_s() const {
    std::vector<double> each;
    for (const auto& [leg, result] : folder_.results()) {
      const std::uint64_t from = leg.rung == 0 ? 0 : folder_.spec().epochs[leg.rung - 1];
      if (result.end == LegEnd::done && result.epoch > from)
        each.push_back(result.seconds / static_cast<double>(result.epoch - from));
    }
    return upper_median(std::move(each));
  }

  /// Of the trainings that are due, those that there are time and node hours for.
  std::vector<std::size_t> affordable(const std::vector<std::size_t>& due) {
    const double each_s = epoch_s(), left_s = spec_.left_s();
    const double left_hours = folder_.spec().node_hours == 0
                                  ? std::numeric_limits<double>::infinity()
                                  : folder_.spec().node_hours - folder_.node_hours();
    std::vector<std::size_t> pieces;
    cannot_go_on_ = false;
    for (const std::size_t piece : due) {
      const auto later = later_.find(piece);
      if (later != later_.end() && now_s() < later->second) continue;
      const double needs_s = each_s * static_cast<double>(list_.epochs(piece));
      const bool late = needs_s > left_s,
                 dear = left_hours <= 0 || needs_s / 3600 * folder_.spec().nodes() > left_hours;
      outcome_.out_of_time = outcome_.out_of_time || late;
      outcome_.out_of_hours = outcome_.out_of_hours || dear;
      cannot_go_on_ = cannot_go_on_ || late || dear;
      if (!late && !dear) pieces.push_back(piece);
    }
    if (!pieces.empty()) cannot_go_on_ = false;
    return pieces;
  }

  /// Whether it may be called again at once.
  bool start_next() {
    const auto free = std::ranges::find_if(slots_, [](const auto& slot) { return !slot; });
    if (free == slots_.end()) return false;
    const double began_ms = now_ms();
    list_.look();
    const std::vector<std::size_t> pieces = affordable(list_.due());
    const auto piece = claims_.take_any(pieces);
    all_held_ =
        !piece && !pieces.empty() && pieces.size() == list_.due().size() && claims_.holders_live();
    if (!piece) return false;
    outcome_.choices_ms.push_back(now_ms() - began_ms);
    Running one{.training = list_.training(*piece), .piece = *piece, .log = {}};
    if (fs::exists(one.training.result)) {  // its holder has done it just now
      claims_.release(*piece);
      return true;
    }
    const fs::path run = folder_.run_of(one.training.run);
    if (train::RunLock::look(train::RunDirectory(run)).held_since_ms) {
      later_[*piece] = now_s() + retry_s;
      claims_.release(*piece);
      return true;
    }
    if (const auto already = result_in(run, one.training)) {
      publish(one, *already);
      return true;
    }
    one.attempt = attempts_of(one.training).size();
    one.began_s = now_s();
    one.log = folder_.path() / "logs" / fmt::format("{}.{}.log", one.training.name, one.attempt);
    try {
      one.child = start(one, static_cast<std::size_t>(free - slots_.begin()));
    } catch (...) {
      claims_.release(*piece);
      throw;
    }
    *free = std::move(one);
    return true;
  }

  pid_t start(const Running& one, std::size_t slot) const {
    const SearchSpec& spec = folder_.spec();
    std::vector<std::string> words;
    if (!spec_.trainer.empty()) {
      // No shell between a worker and its training would pass signals on.
      words = {"sh", "-c", "exec " + spec_.trainer + " \"$@\"", "sh"};
    } else {
      if (spec.ranks > 1 || spec_.launcher == StudyLauncher::srun)
        words = launch_words(spec_.launcher, spec.ranks, spec.ranks_per_node, spec.cpus_per_rank);
      if (spec_.launcher == StudyLauncher::srun) {
        // Steps next to each other: each has its own cores and GPUs, and none takes all memory.
        words.insert(words.end(), {"--exact", "--mem=0"});
        if (spec.gpus_per_node > 0)
          words.push_back(
              fmt::format("--gpus-per-node={}", std::min(spec.gpus_per_node, spec.ranks)));
      }
      words.push_back(spec_.program);
    }
    words.insert(words.end(), {"train", "--config", folder_.train_toml().string()});
    for (const config::ConfigKey* key : config::changed_keys(one.training.keys, folder_.base()))
      words.insert(words.end(), {"--" + key->name, key->get(one.training.keys)});
    words.insert(words.end(),
                 {"--out", folder_.run_of(one.training.run).string(), "--resume", "auto"});
    if (!one.training.whole)
      words.insert(words.end(), {"--stop-after-epoch", std::to_string(one.training.to_epoch)});
    const bool divides = slots_.size() > 1 && spec_.launcher == StudyLauncher::mpirun;
    const SlotCores cores(divides ? slots_.size() : 1, slot);
    return start_child({.words = words,
                        .log = one.log,
                        .environment = divides
                                           ? gpus_of_slot(spec.gpus_per_node, slots_.size(), slot)
                                           : std::vector<std::string>{}});
  }

  std::vector<LegResult> attempts_of(const Training& training) const {
    std::vector<LegResult> attempts;
    for (std::size_t n = 0;; ++n) {
      const fs::path file = training.attempts.string() + fmt::format(".{}.json", n);
      if (!fs::exists(file)) return attempts;
      attempts.push_back(read_leg(file));
    }
  }

  /// What a training that has ended with this status was worth.
  void finish(const Running& one, int status) {
    const fs::path run = folder_.run_of(one.training.run);
    std::optional<LegResult> result = result_in(run, one.training);
    if (result || (status == 1 && (result = divergence_in(run, one.training)))) {
      in_a_row_ = 0;
      return publish(one, *result);
    }
    LegResult attempt = empty_result(one.training);
    // Trainings know a job's time, too, and a terminal's Ctrl-C is for all.
    const bool knows_end = one.told || train::stop_requested() || std::isfinite(spec_.left_s());
    const bool stopped = one.told || (status == status_stopped && knows_end);
    if (stopped && std::isfinite(spec_.left_s())) late_ = outcome_.out_of_time = true;
    attempt.end = stopped ? LegEnd::stopped : LegEnd::failed;
    attempt.reason = attempt.end == LegEnd::stopped
                         ? "stopped before its end"
                         : fmt::format("ended with status {}: {}", status, last_line(one.log));
    measure(one, attempt);
    std::vector<LegResult> attempts = attempts_of(one.training);
    attempts.push_back(attempt);
    const auto failures =
        static_cast<std::size_t>(std::ranges::count(attempts, LegEnd::failed, &LegResult::end));
    if (attempt.end == LegEnd::stopped) {
      ++outcome_.stopped;
    } else {
      later_[one.piece] = now_s() + 1;
      if (++in_a_row_ >= most_in_a_row)
        outcome_.gave_up = fmt::format("{} trainings failed one after the other; the last, {}, {}",
                                       in_a_row_, one.training.name, attempt.reason);
    }
    if (failures >= most_attempts) return publish(one, attempt);
    log::info(fmt::format("trial {}: {}", one.training.name, attempt.reason));
    publish_text(one.training.attempts.string() + fmt::format(".{}.json", one.attempt),
                 fields_to_json(attempt) + "\n");
    claims_.release(one.piece);
  }

  void measure(const Running& one, LegResult& result) const {
    result.seconds = one.child == 0 ? 0 : now_s() - one.began_s;
    result.node_hours = result.seconds / 3600 * folder_.spec().nodes();
    if (result.ranks == 0) result.ranks = folder_.spec().ranks;
  }

  void publish(const Running& one, LegResult result) {
    measure(one, result);
    if (publish_text(one.training.result, fields_to_json(result) + "\n")) {
      ++(result.end == LegEnd::done       ? outcome_.done
         : result.end == LegEnd::diverged ? outcome_.diverged
                                          : outcome_.failed);
      log::info(fmt::format("trial {}, epoch {}: {} ({})", result.trial, result.epoch,
                            describe(result), human_seconds(result.seconds)));
    }
    claims_.release(one.piece);
  }

  SearchFolder& folder_;
  TrainingList& list_;
  const WorkerSpec& spec_;
  WorkFolder claims_;
  std::vector<std::optional<Running>> slots_;
  std::map<std::size_t, double> later_;  ///< when a piece may be taken again
  WorkerOutcome outcome_;
  std::size_t in_a_row_ = 0;
  std::optional<double> epoch_s_;
  std::size_t epoch_s_version_ = 0;
  bool all_held_ = false;  ///< by others who live
  bool late_ = false, cannot_go_on_ = false;
};

class Legs : public TrainingList {
 public:
  explicit Legs(SearchFolder& folder) : folder_(folder) {}
  void look() override {
    folder_.look();
    for (const auto& [file, why] : folder_.bad_trials())
      if (told_.insert(file).second) log::warn(why + "; it is left out");
    if (std::exchange(seen_, folder_.version()) == folder_.version()) return;
    due_.clear();
    for (const Leg& leg : study::due(folder_.spec().rungs(), folder_.numbers(), folder_.scores()))
      due_.push_back(leg.trial * most_rungs + leg.rung);
  }
  const std::vector<std::size_t>& due() const override { return due_; }
  std::size_t most_to_come() const override {
    return study::most_to_come(folder_.spec().rungs(), folder_.numbers(), folder_.scores());
  }
  Training training(std::size_t piece) const override {
    const std::size_t trial = piece / most_rungs, rung = piece % most_rungs;
    const std::vector<std::uint64_t>& epochs = folder_.spec().epochs;
    const std::string name = fmt::format("{}.{}", trial, rung);
    return {.run = std::to_string(trial),
            .name = name,
            .result = folder_.path() / "results" / (name + ".json"),
            .attempts = folder_.path() / "attempts" / name,
            .keys = folder_.trials().at(trial),
            .to_epoch = epochs[rung],
            .trial = trial,
            .rung = rung,
            .whole = rung + 1 == epochs.size()};
  }
  std::uint64_t epochs(std::size_t piece) const override {
    const std::size_t rung = piece % most_rungs;
    const std::vector<std::uint64_t>& ends = folder_.spec().epochs;
    return ends[rung] - (rung == 0 ? 0 : ends[rung - 1]);
  }
  bool is_complete() const override {
    return due_.empty() &&
           study::is_complete(folder_.spec().rungs(), folder_.numbers(), folder_.scores());
  }
  fs::path claims() const override { return folder_.path() / "claims"; }

 private:
  SearchFolder& folder_;
  std::set<std::string> told_;
  std::vector<std::size_t> due_;
  std::optional<std::size_t> seen_;  ///< the version of the folder that due_ is of
};

}  // namespace

std::unique_ptr<TrainingList> legs_of(SearchFolder& folder) {
  return std::make_unique<Legs>(folder);
}

WorkerOutcome work(SearchFolder& folder, TrainingList& list, const WorkerSpec& spec) {
  list.look();
  if (list.is_complete()) return {.complete = true, .gave_up = "", .choices_ms = {}};
  return Worker(folder, list, spec).run();
}

}  // namespace lockstep::study
