#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/identity/identify.hpp"

namespace lockstep::cluster {

enum class Severity {
  error,    ///< Slurm rejects the job, or it fails or does something else than its script says
  warning,  ///< it may run, but wastes resources or loses work when something happens
  note      ///< no fault: what was not checked
};

/// What is wrong with a line of a batch script, and what to write instead.
struct Finding {
  std::size_t line = 0;  ///< from 1; 0: the whole script
  Severity severity = Severity::warning;
  std::string rule;  ///< its short name
  std::string text;
};

/// A command of lockstep in a script.
struct ProgramCall {
  std::vector<std::string> words;  ///< after the program's name; variables as they are written
  std::optional<int> ranks;        ///< empty: the script does not show how many
  /// Whether what the job will find at this path can be seen from here: its name is written out,
  /// and no command before this one goes elsewhere, or may make it.
  std::function<bool(const std::string& path)> shows;
};

struct CallFaults {
  std::vector<std::string> faults;  ///< as lockstep would report them
  std::vector<std::string> unseen;  ///< words that only the job can judge
};

/// What lint asks about things outside the script. Functions that are not set are not asked.
struct LintContext {
  std::function<CallFaults(const ProgramCall&)> faults_of_call;
  std::function<std::string(const std::string& toml)> fault_of_toml;  ///< empty: none
  std::function<bool(const std::string& path)> is_folder;
  std::function<std::optional<SlurmVersion>()> slurm;  ///< of srun, where lint runs
};

/// Whether the shell takes the text as it is written.
inline bool is_literal(std::string_view text) { return text.find_first_of("$`*?~") == text.npos; }

/// Finds faults in an sbatch script that starts lockstep: in its #SBATCH lines, and in its calls of
/// srun and mpirun. Sorted by line. What only the job can know is not judged, and a note says so.
std::vector<Finding> lint_batch_script(std::string_view script, const LintContext& context = {});

}  // namespace lockstep::cluster
