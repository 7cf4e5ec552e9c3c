#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.hpp"

/// What a scaling study measures, and the batch script that does it. A study's folder has
/// study.json (the plan), train.toml (the training of all steps), study.sbatch, points/ (one folder
/// or file for each step that was done) and logs/.
namespace lockstep::study {

struct PlanSpec {
  std::vector<std::size_t> ranks;  ///< ascending
  std::size_t ranks_per_node = 1;
  std::size_t batch = 0;  ///< strong scaling: rows of a step, over all ranks; 0: none
  std::size_t rows = 0;   ///< weak scaling: rows of a step on each rank; 0: none
  std::size_t repetitions = 3, steps = 50, warm_up = 5;
  bool synthetic = true, real = false;
  /// Of synthetic rows, in plans of older programs; empty: as the training's keys say.
  std::optional<std::size_t> image = {}, classes = {};
  std::size_t gpus_per_node = 0, cpus_per_rank = 1;
  std::string time = "01:00:00";  ///< the job's limit
  bool array = false;             ///< a job array, a task for each number of ranks

  static void fields(auto& self, auto&& visit) {
    visit("ranks", self.ranks);
    visit("ranks_per_node", self.ranks_per_node);
    visit("batch", self.batch);
    visit("rows", self.rows);
    visit("repetitions", self.repetitions);
    visit("steps", self.steps);
    visit("warm_up", self.warm_up);
    visit("synthetic", self.synthetic);
    visit("real", self.real);
    visit.later("image", self.image);
    visit.later("classes", self.classes);
    visit("gpus_per_node", self.gpus_per_node);
    visit("cpus_per_rank", self.cpus_per_rank);
    visit("time", self.time);
    visit("array", self.array);
  }
};

/// One measurement: the study's training with other keys, on some ranks.
struct Measurement {
  std::size_t ranks = 0, batch = 0, repetition = 0;  ///< repetition: from 1
  bool synthetic = false;    ///< its result is what bench train writes; else it is a run
  std::string name() const;  ///< "real-00008-b512-1"
  /// Its own keys: its batch, the size of its rows, and on one rank none that is about several.
  std::map<std::string, std::string> keys(const PlanSpec& plan,
                                          const config::Config& training) const;
};

/// All steps in their order: repetitions are the outer loop, so that a slow hour touches all sizes
/// alike. Besides both series, the fewest ranks take the rows that each rank of the strong series
/// has: otherwise rows and ranks change together, and no one can tell them apart. Throws InputError
/// for numbers that contradict each other.
std::vector<Measurement> measurements_of(const PlanSpec& spec);

/// The number of different configurations of ranks and batch.
std::size_t configurations(const std::vector<Measurement>& steps);

/// Writes the study's folder, which must not exist. `training` is that of all steps; its batch and
/// files are not used. Throws InputError naming the path, or a key that a study sets itself.
void write_plan(const std::filesystem::path& folder, const PlanSpec& spec,
                const config::Config& training);
/// Throws as write_plan(); writes nothing.
void check_plan(const std::filesystem::path& folder, const PlanSpec& spec,
                const config::Config& training);

/// Throws InputError naming the file and what is wrong with it.
PlanSpec read_plan(const std::filesystem::path& folder);

std::string batch_script(const std::filesystem::path& folder, const PlanSpec& spec);

}  // namespace lockstep::study
