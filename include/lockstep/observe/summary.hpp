#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/observe/records.hpp"

namespace lockstep::observe {

/// What metrics.jsonl says about a run, but for its single steps.
struct Course {
  std::uint64_t steps = 0;      ///< that were done
  std::uint64_t newest_ms = 0;  ///< when the newest record was written, since 1970
  std::vector<StartRecord> starts;
  std::vector<EpochRecord> epochs;
  std::vector<ResumeRecord> resumes;
  std::optional<EndRecord> end;  ///< of the newest start
  StrangeLines strange;          ///< other programs may have written to it
};

/// Without a file, nothing has happened. Throws InputError when it cannot be read.
Course read_course(const std::filesystem::path& metrics);

/// The best validation of a run.
struct BestValidation {
  double top1 = 0;  ///< or another score
  std::uint64_t epoch = 0;
  std::string score = {};  ///< its name; empty: top-1

  static void fields(auto& self, auto&& visit) {
    visit("best_val_top1", self.top1);
    visit("best_epoch", self.epoch);
    visit.unless_empty("best_score", self.score);
  }
};

/// summary.json: what became of a run that finished, diverged or failed. Times are those of its
/// newest start.
struct Summary {
  std::string model, precision;
  std::uint64_t batch = 0, epochs = 0, steps = 0;  ///< epochs, steps: done
  std::optional<Validation> validation;            ///< the newest of this start
  std::optional<AverageValidation> average;        ///< the same
  std::optional<BestValidation> best;
  double seconds = 0, seconds_to_first_step = 0, images_per_s = 0;
  StepTimes mean_step = {};
  std::uint64_t peak_resident_bytes = 0;  ///< the largest of all ranks; after a failure rank 0's
  std::string status = "finished";        ///< as in EndRecord, like the next two
  Ending ending = Ending::unknown;
  std::string reason = {};
  std::uint64_t samples = 0;   ///< rows that training has seen
  StartRecord start = {};      ///< run_id, build, hosts, ... of the newest start
  std::uint64_t ended_ms = 0;  ///< since 1970
  /// Of all starts; to_best: up to the end of the epoch of `best`.
  std::optional<LedgerSum> ledger = std::nullopt, ledger_to_best = std::nullopt;

  static void fields(auto& self, auto&& visit) {
    visit("model", self.model);
    visit("precision", self.precision);
    visit("batch", self.batch);
    visit("epochs", self.epochs);
    visit("steps", self.steps);
    visit.group("val_loss", self.validation);
    visit.group("ema_loss", self.average);
    visit.group("best_val_top1", self.best);
    visit("seconds", self.seconds);
    visit.later("seconds_to_first_step", self.seconds_to_first_step);
    visit("images_per_s", self.images_per_s);
    visit("mean_step", self.mean_step);
    visit.later("peak_resident_bytes", self.peak_resident_bytes);
    visit.later("status", self.status);
    visit.later("ending", self.ending);
    visit.later("reason", self.reason);
    visit.later("samples", self.samples);
    visit.later("start", self.start);
    visit.later("ended_ms", self.ended_ms);
    visit.later("ledger", self.ledger);
    visit.later("ledger_to_best", self.ledger_to_best);
  }
  bool finished() const { return status == "finished"; }
};

std::string to_json(const Summary& summary);  ///< with line ends and a final one
/// Throws InputError naming the file and what is wrong with it.
Summary read_summary(const std::filesystem::path& path);

}  // namespace lockstep::observe
