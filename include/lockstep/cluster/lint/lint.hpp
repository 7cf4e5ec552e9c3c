#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// What lint asks about things outside the script. Functions that are not set are not asked.
struct LintContext {
  /// The fault of an option of `lockstep train` (without dashes) and its value; empty when there is
  /// none. Without a value only the name is judged.
  std::function<std::string(const std::string& name, const std::optional<std::string>& value)>
      fault_of_option;
  std::function<std::string(const std::string& toml)> fault_of_toml;  ///< the same for a TOML file
  std::function<bool(const std::string& path)> is_folder;

  /// Why a file or folder cannot be read from here; empty when it can.
  std::function<std::string(const std::string& path)> fault_of_path;
  std::vector<std::string> input_keys;  ///< options that name a file or folder to read
  /// What --config names, as read from here.
  struct ConfigFile {
    std::string fault;  ///< empty: none
    /// Input keys that it sets, with their paths.
    std::vector<std::pair<std::string, std::string>> inputs;
  };
  std::function<ConfigFile(const std::string& path)> read_config;
};

/// Finds faults in an sbatch script that starts lockstep: in its #SBATCH lines, and in its calls of
/// srun and mpirun. Sorted by line. Values that come from variables are not judged; where they name
/// files, a note says so.
std::vector<Finding> lint_batch_script(std::string_view script, const LintContext& context = {});

}  // namespace lockstep::cluster
