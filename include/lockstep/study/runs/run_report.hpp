#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// One page about one or several runs, made from their folders: also from one of a run that was
/// killed, or of which files are missing. Only the energy of a Slurm job is asked for elsewhere.
namespace lockstep::study {

struct RunReport {
  std::string html;                ///< one page that needs nothing else
  std::string text;                ///< the same without pictures
  std::vector<std::string> notes;  ///< files that are missing or damaged, with the runs' names
};

/// Throws InputError naming a folder that is not a run's, or whose records are another program's.
RunReport report_runs(const std::vector<std::filesystem::path>& runs);

/// Whether a file is a page that report_runs() made: only such a one is written over.
bool is_run_report(const std::filesystem::path& file);

}  // namespace lockstep::study
