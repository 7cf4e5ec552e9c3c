#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

enum class Severity {
  error,   ///< the job is refused, fails, or does something else than its script says
  warning  ///< it may run, but wastes what it asked for or loses work when something happens
};

/// What is wrong with a line of a batch script, in words that say what to write instead.
struct Finding {
  std::size_t line = 0;  ///< from 1; 0: it is of the whole script
  Severity severity = Severity::warning;
  std::string rule;  ///< its short name
  std::string text;
};

/// What would go wrong with a script for sbatch that starts lockstep: in its #SBATCH lines, and
/// where it calls srun or mpirun. Sorted by line. What the script leaves to variables is not
/// judged.
std::vector<Finding> lint_batch_script(std::string_view script);

}  // namespace lockstep::cluster
