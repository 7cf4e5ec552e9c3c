#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/config/config.hpp"
#include "lockstep/study/plan/run_study.hpp"
#include "lockstep/study/search/search_folder.hpp"

/// Trains what a search has to train: one process of any number that share its folder.
namespace lockstep::study {

/// One training up to an epoch. It continues where its run's folder is.
struct Training {
  std::string run;                 ///< its folder in runs/
  std::string name;                ///< of its log: "17.1"
  std::filesystem::path result;    ///< the file that appears when it is done
  std::filesystem::path attempts;  ///< the same with ".N.json" for what gave none
  config::Config keys;             ///< all of them
  std::uint64_t to_epoch = 0;
  std::size_t trial = 0, rung = 0;  ///< as the result has them
  bool whole = false;               ///< it ends with this epoch anyway
};

/// What there is to train, as pieces of a work folder.
class TrainingList {
 public:
  virtual ~TrainingList() = default;
  virtual void look() = 0;                                  ///< at what others have done
  virtual const std::vector<std::size_t>& due() const = 0;  ///< as look() found
  /// That one result makes due at once, at most.
  virtual std::size_t most_to_come() const = 0;
  virtual Training training(std::size_t piece) const = 0;     ///< REQUIRES: it is due
  virtual std::uint64_t epochs(std::size_t piece) const = 0;  ///< that it takes
  virtual bool is_complete() const = 0;
  virtual std::filesystem::path claims() const = 0;
};

/// The legs of all trials. `folder` must outlive it.
std::unique_ptr<TrainingList> legs_of(SearchFolder& folder);

struct WorkerSpec {
  std::string program;  ///< lockstep itself
  StudyLauncher launcher = StudyLauncher::mpirun;
  /// Takes the place of program and launcher: words for a shell, before those of `lockstep train`;
  /// the first is a program.
  std::string trainer;
  std::size_t slots = 1;  ///< trainings next to each other
  double stale_s = 60;    ///< after which the claim of a silent worker counts no more
  /// Seconds until the worker has to be gone.
  std::function<double()> left_s = [] { return std::numeric_limits<double>::infinity(); };
};

struct WorkerOutcome {
  std::size_t done = 0, diverged = 0, failed = 0, stopped = 0;  ///< by this worker
  bool complete = false;                                        ///< of the whole list
  bool left_to_others = false;  ///< those who train what is left have no need of this worker
  bool told_to_stop = false, out_of_time = false, out_of_hours = false;
  std::string gave_up;             ///< why, where its trainings fail one after the other
  std::vector<double> choices_ms;  ///< how long it took to choose each of its trainings
};

/// Trains until nothing is left that it could ever take, or until it has to end: then what it
/// trains is stopped with a checkpoint, and any worker continues it. It waits for what others train
/// as long as that may make more due than they take themselves, or they may be dead. A worker that
/// is killed takes its trainings with it. Neither diverging nor failing (three times) ends the
/// work: it is that trial's result.
WorkerOutcome work(SearchFolder& folder, TrainingList& list, const WorkerSpec& spec);

}  // namespace lockstep::study
