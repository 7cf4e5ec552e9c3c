#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

enum class Severity {
  error,   ///< Slurm rejects the job, or it fails or does something else than its script says
  warning  ///< it may run, but wastes resources or loses work when something happens
};

/// What is wrong with a line of a batch script, and what to write instead.
struct Finding {
  std::size_t line = 0;  ///< from 1; 0: the whole script
  Severity severity = Severity::warning;
  std::string rule;  ///< its short name
  std::string text;
};

/// Finds faults in an sbatch script that starts lockstep: in its #SBATCH lines, and in its calls of
/// srun and mpirun. Sorted by line. Values that come from variables are not judged.
std::vector<Finding> lint_batch_script(std::string_view script);

}  // namespace lockstep::cluster
