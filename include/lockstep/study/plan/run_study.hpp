#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/study/plan/study_plan.hpp"

/// Does the steps of a planned study, one after the other.
namespace lockstep::study {

enum class StudyLauncher {
  srun,   ///< steps inside a Slurm job
  mpirun  ///< ranks on this machine
};

/// By its name; "auto": srun in a Slurm job, otherwise mpirun.
StudyLauncher launcher_of(const std::string& name, const cluster::EnvLookup& env);

struct StudyRun {
  std::string program;  ///< lockstep itself
  StudyLauncher launcher = StudyLauncher::mpirun;
  std::size_t ranks = 0;  ///< only steps on that many ranks; 0: all
};

struct StudyOutcome {
  std::size_t done = 0;             ///< now
  std::size_t earlier = 0;          ///< were done before
  std::size_t missing = 0;          ///< steps of the whole study that are still to be done
  std::vector<std::string> failed;  ///< one line each, with the log's path
};

/// Continues where an earlier call stopped: a step counts once all of its result is there, and what
/// a killed step left behind is removed. Several processes may share a study, on any machines
/// (WorkFolder); they return when all is done. A step that fails is named and does not stop the
/// others.
StudyOutcome run_study(const std::filesystem::path& folder, const StudyRun& spec);

/// The words that start a program on that many ranks.
std::vector<std::string> launch_words(StudyLauncher launcher, std::size_t ranks,
                                      std::size_t ranks_per_node, std::size_t cpus_per_rank);
/// What a program's log says of how it failed: its last line with an error, else its first line.
std::string last_line(const std::filesystem::path& log);

/// The words that start a step, without the launcher's.
std::vector<std::string> command_of(const std::filesystem::path& folder, const PlanSpec& plan,
                                    const Measurement& step, const std::string& result);

}  // namespace lockstep::study
